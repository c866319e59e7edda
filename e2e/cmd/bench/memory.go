package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"apportion.dev/apportion/e2e/standalone"
)

// stubSource is an NVML with 8 H100 in C, so that nothing but the programs themselves
// counts as their memory.
//
//go:embed nvmlstub/nvml.c
var stubSource string

// settling is how long a program runs before its memory is read: its first readings of
// the hardware and its first garbage collections are then over.
const settling = 15 * time.Second

// memory prints the resident memory of the programs of a node with 8 H100. programs is
// the folder that they are in.
func memory(ctx context.Context, programs, dir string) (err error) {
	work, err := os.MkdirTemp(dir, "memory-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	library, err := buildStub(ctx, work)
	if err != nil {
		return err
	}
	p, err := standalone.Start(ctx, standalone.Options{Program: filepath.Join(programs, "apportion-kubelet-plugin"), Parent: work, Library: library})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	const wanted = 8 * (1 + 25) // Each GPU, and the places of its seven profiles.
	if devices := len(p.Devices()); devices != wanted {
		return fmt.Errorf("the plugin published %d devices of 8 H100, want %d", devices, wanted)
	}
	folders := []string{"--driver-name=" + standalone.DriverName, "--kubelet-plugins-directory-path=" + p.PluginsDir(), "--container-driver-root=" + work}
	const address = "127.0.0.1:19400"
	exporter, err := startIdle(ctx, filepath.Join(programs, "apportion-exporter"), append(folders, "--nvml-library="+library, "--web.listen-address="+address)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, exporter.stop()) }()
	mps, err := startIdle(ctx, filepath.Join(programs, "apportion-mps"), folders...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mps.stop()) }()
	select {
	case <-time.After(settling):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := scrape(ctx, "http://"+address+"/metrics"); err != nil {
		return err
	}
	fmt.Printf("\nresident memory after %s with 8 H100 of a C library (%d devices published):\n", settling, len(p.Devices()))
	for _, program := range []struct {
		name string
		pid  int
	}{{"apportion-kubelet-plugin", p.PID()}, {"apportion-exporter", exporter.Process.Pid}, {"apportion-mps", mps.Process.Pid}} {
		all, anonymous, err := resident(program.pid)
		if err != nil {
			return fmt.Errorf("%s: %w", program.name, err)
		}
		fmt.Printf("%-26s %5.1f MB, of it %5.1f MB its own and %5.1f MB mapped files\n", program.name, all, anonymous, all-anonymous)
	}
	return nil
}

// buildStub compiles the stub with every other function of NVML's header answering
// NVML_ERROR_NOT_SUPPORTED, and returns the library's path.
func buildStub(ctx context.Context, dir string) (string, error) {
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return "", fmt.Errorf("find NVML's header: %w", err)
	}
	headers := filepath.Join(strings.TrimSpace(string(module)), "pkg", "nvml")
	header, err := os.ReadFile(filepath.Join(headers, "nvml.h"))
	if err != nil {
		return "", err
	}
	function := regexp.MustCompile(`\b(nvml[A-Z]\w*) ?\(`)
	done := map[string]bool{}
	for _, match := range function.FindAllStringSubmatch(stubSource, -1) {
		done[match[1]] = true
	}
	var rest strings.Builder
	for line := range strings.Lines(string(header)) {
		match := function.FindStringSubmatch(line)
		if match != nil && strings.Contains(line, "DECLDIR") && !done[match[1]] {
			done[match[1]] = true
			fmt.Fprintf(&rest, "int %s(void) { return 3; }\n", match[1])
		}
	}
	stub, others, library := filepath.Join(dir, "nvml.c"), filepath.Join(dir, "rest.c"), filepath.Join(dir, "libnvidia-ml.so.1")
	if err := errors.Join(os.WriteFile(stub, []byte(stubSource), 0o600), os.WriteFile(others, []byte(rest.String()), 0o600)); err != nil {
		return "", err
	}
	output, err := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-w", "-Wl,-soname,libnvidia-ml.so.1", "-I"+headers, "-o", library, stub, others).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile the stub of NVML: %w\n%s", err, output)
	}
	return library, nil
}

// idle is a program that runs while its memory is measured.
type idle struct {
	*exec.Cmd
	log *os.File
}

func startIdle(ctx context.Context, program string, arguments ...string) (*idle, error) {
	log, err := os.CreateTemp("", filepath.Base(program))
	if err != nil {
		return nil, err
	}
	p := &idle{exec.CommandContext(ctx, program, arguments...), log}
	p.Stdout, p.Stderr = log, log
	if err := p.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", program, err), log.Close(), os.Remove(log.Name()))
	}
	return p, nil
}

// stop ends the program. Where it had not run until then its log is in the error.
func (p *idle) stop() error {
	err := p.Process.Signal(os.Interrupt)
	if ended := p.Wait(); err != nil || ended != nil {
		text, readErr := os.ReadFile(p.log.Name())
		err = fmt.Errorf("%s: %w\n%s", p.Path, errors.Join(err, ended, readErr), text)
	}
	return errors.Join(err, p.log.Close(), os.Remove(p.log.Name()))
}

// scrape reads an exporter's metrics once.
func scrape(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	temperatures := 0
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "DCGM_FI_DEV_GPU_TEMP{") {
			temperatures++
		}
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if temperatures != 8 {
		return fmt.Errorf("the exporter gives %d temperatures, want those of 8 GPUs", temperatures)
	}
	return nil
}

// resident is a process's resident memory in MB (10^6 bytes): all, and what is backed
// by no file (proc(5), smaps_rollup).
func resident(pid int) (all, anonymous float64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(data)) {
		var kilobytes float64
		name, value, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscanf(value, "%f kB", &kilobytes); err != nil {
			continue // The first line has no amount.
		}
		switch name {
		case "Rss":
			all = kilobytes * 1024 / 1e6
		case "Anonymous":
			anonymous = kilobytes * 1024 / 1e6
		}
	}
	return all, anonymous, nil
}
