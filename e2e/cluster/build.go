package cluster

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Versions of what the cluster runs. KubernetesVersion is that of the module
// k8s.io/kubernetes in e2e/kube/go.mod; a test holds them equal.
const (
	KubernetesVersion = "v1.37.2"
	containerdVersion = "v2.4.2"
	pluginsVersion    = "v1.10.0"
)

// Programs that are built from this repository.
const (
	kube       = "kube"
	pause      = "pause"
	prometheus = "prometheus"
)

// tool is one program of the cluster.
type tool struct {
	name string
	// what the reader is told that is being built.
	what string
	// dir is the module, below the repository, that it is built in; empty for a
	// program that is installed by version.
	dir string
	// pkg is the Go package, with its version if dir is empty.
	pkg string
	// inputs are the files, below the repository, that a change of makes it built
	// again.
	inputs []string
	flags  []string
	static bool
}

func tools() []tool {
	version := strings.TrimPrefix(KubernetesVersion, "v")
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	const variable = " -X k8s.io/component-base/version."
	list := []tool{
		{
			name: kube, what: "Kubernetes " + KubernetesVersion + " (from nothing about 8 minutes on two processors)",
			dir: "e2e/kube", pkg: ".", inputs: []string{"e2e/kube/main.go", "e2e/kube/go.mod"},
			flags: []string{"-ldflags", "-s -w" + variable + "gitVersion=" + KubernetesVersion + variable + "gitMajor=" + major + variable + "gitMinor=" + minor},
		},
		{
			name: etcd, what: "etcd (from nothing about a minute)",
			dir: "e2e/etcd", pkg: ".", inputs: []string{"e2e/etcd/main.go", "e2e/etcd/go.mod"}, static: true,
		},
		{name: pause, what: "pause", dir: "e2e", pkg: "./cmd/pause", inputs: []string{"e2e/cmd/pause/main.go"}, static: true},
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		list = append(list, tool{name: name, what: name + " " + containerdVersion, pkg: "github.com/containerd/containerd/v2/cmd/" + name + "@" + containerdVersion, static: true,
			flags: []string{"-ldflags", "-s -w -X github.com/containerd/containerd/v2/version.Version=" + strings.TrimPrefix(containerdVersion, "v")}})
	}
	for name, folder := range map[string]string{"ptp": "main", "loopback": "main", "host-local": "ipam"} {
		list = append(list, tool{name: name, what: "CNI plugin " + name + " " + pluginsVersion, pkg: "github.com/containernetworking/plugins/plugins/" + folder + "/" + name + "@" + pluginsVersion, static: true})
	}
	return list
}

// prometheusTool is what no cluster needs, only tests that read metrics as users do.
// Its targets are named one by one, so it needs none of the ways to find them, which
// are most of its code.
func prometheusTool() tool {
	return tool{
		name: prometheus, what: "Prometheus (from nothing about 3 minutes on two processors)",
		dir: "e2e/prometheus", pkg: "github.com/prometheus/prometheus/cmd/prometheus", inputs: []string{"e2e/prometheus/go.mod"},
		flags: []string{"-tags", "remove_all_sd", "-ldflags", "-s -w"}, static: true,
	}
}

// BuildPrometheus builds Prometheus, if it is not there or its version has changed,
// and returns the program's path. Of the options it takes SourceDir, BinDir and Log.
func BuildPrometheus(ctx context.Context, o Options) (path string, err error) {
	if o, err = o.withDefaults(); err != nil {
		return "", err
	}
	b := &builder{source: o.SourceDir, bin: o.BinDir, log: o.Log}
	if err := b.folder(); err != nil {
		return "", err
	}
	return filepath.Join(o.BinDir, prometheus), b.tool(ctx, prometheusTool())
}

// builder makes the cluster's programs and images and keeps them.
type builder struct {
	// source is the root of the repository; bin is where the programs go.
	source, bin string
	log         io.Writer
}

// folder makes the folder for the programs, which keeps itself out of git wherever it
// is.
func (b *builder) folder() error {
	if err := os.MkdirAll(b.bin, 0o755); err != nil {
		return err
	}
	return writeFile(filepath.Join(b.bin, ".gitignore"), []byte("*\n"), 0o644)
}

// all makes what is missing or was made from other inputs.
func (b *builder) all(ctx context.Context) error {
	if err := b.folder(); err != nil {
		return err
	}
	if err := b.requirePackage(ctx, "runc", "runc"); err != nil {
		return err
	}
	for _, t := range tools() {
		if err := b.tool(ctx, t); err != nil {
			return err
		}
	}
	return b.images(ctx)
}

func (b *builder) tool(ctx context.Context, t tool) error {
	key, err := b.key(t)
	if err != nil {
		return fmt.Errorf("build %s: %w", t.name, err)
	}
	return b.once(t.name, key, func(path string) error {
		arguments := []string{"install", "-v", "-buildvcs=false"}
		if t.dir != "" {
			arguments = []string{"build", "-v", "-buildvcs=false", "-o", path}
		}
		flags := t.flags
		if len(flags) == 0 {
			flags = []string{"-ldflags", "-s -w"}
		}
		cmd := exec.CommandContext(ctx, "go", append(append(arguments, flags...), t.pkg)...)
		cmd.Dir = filepath.Join(b.source, t.dir)
		// The caller's C flags have no use here, and other ones than last time would
		// have all of Kubernetes compiled anew.
		cmd.Env = append(os.Environ(), "GOBIN="+b.bin, "CGO_CFLAGS=", "CGO_LDFLAGS=")
		if t.static {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
		}
		return b.run(t.what, cmd)
	})
}

// key identifies the inputs of a tool.
func (b *builder) key(t tool) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, KubernetesVersion, t.pkg, t.flags, t.static)
	for _, input := range t.inputs {
		data, err := os.ReadFile(filepath.Join(b.source, input))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(hash, input, len(data))
		hash.Write(data)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// once runs make if the file name in the bin folder is missing or has another key.
func (b *builder) once(name, key string, make func(path string) error) error {
	path := filepath.Join(b.bin, name)
	keyPath := filepath.Join(b.bin, "."+name+".key")
	if old, err := os.ReadFile(keyPath); err == nil && string(old) == key && exists(path) {
		return nil
	}
	if err := make(path); err != nil {
		return err
	}
	return writeFile(keyPath, []byte(key), 0o644)
}

// run runs a build that may take minutes, and says from time to time how far it is.
func (b *builder) run(what string, cmd *exec.Cmd) error {
	say := func(format string, values ...any) { _, _ = fmt.Fprintf(b.log, format+"\n", values...) }
	say("building %s", what)
	output, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build %s: %w (the Go toolchain must be in the PATH)", what, err)
	}
	lines := make(chan string)
	go func() { // ends with the output, which the loop below reads to its end
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
		_, _ = io.Copy(io.Discard, output) // after a line too long to scan
	}()
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	var compiled int
	var last []string
	for open := true; open; {
		var line string
		select {
		case line, open = <-lines:
			if open {
				if !strings.HasPrefix(line, "go: ") { // not a download
					compiled++
				}
				last = append(last[max(0, len(last)-19):], line)
			}
		case <-progress.C:
			at := ""
			if len(last) > 0 {
				at = ", at " + last[len(last)-1]
			}
			say("  %s: %d packages compiled%s", time.Since(start).Round(time.Second), compiled, at)
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", what, err, strings.Join(last, "\n"))
	}
	say("  done in %s", since(start))
	return nil
}

// requirePackage makes sure that a program is installed; where the system has
// Debian's packages, it installs the one that has it.
func (b *builder) requirePackage(ctx context.Context, program, name string) error {
	if _, err := exec.LookPath(program); err == nil {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("the program %s is missing: install it with this system's package manager", program)
	}
	_, _ = fmt.Fprintf(b.log, "installing the package %s, for the program %s\n", name, program)
	install := func(arguments ...string) error {
		cmd := exec.CommandContext(ctx, "apt-get", arguments...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(arguments, " "), err, output)
		}
		return nil
	}
	err := install("install", "--yes", "--no-install-recommends", name)
	if err != nil { // a fresh system has no package lists
		err = install("update")
	}
	if err == nil {
		err = install("install", "--yes", "--no-install-recommends", name)
	}
	if err != nil {
		return fmt.Errorf("install the package %s, for the program %s: %w", name, program, err)
	}
	return nil
}

// findSource finds the repository around the current folder.
func findSource() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "e2e", kube, "main.go")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the repository to build from: it is not around the current folder; go there, or name it")
		}
	}
}
