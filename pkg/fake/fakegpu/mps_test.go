package fakegpu

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"
)

// shells are the ones of this machine that may run the fake programs.
func shells(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{"sh": {"sh"}}
	for name, command := range map[string][]string{"busybox": {"busybox", "sh"}, "bash": {"bash"}} {
		if _, err := exec.LookPath(command[0]); err == nil {
			found[name] = command
		}
	}
	return found
}

// mpsControl is the machine's nvidia-cuda-mps-control with folders of its own.
type mpsControl struct {
	shell []string
	dir   string
	path  string
}

func (c mpsControl) command(args ...string) *exec.Cmd {
	argv := append(slices.Clone(c.shell), append([]string{c.path}, args...)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CUDA_VISIBLE_DEVICES=GPU-0",
		"CUDA_MPS_PIPE_DIRECTORY=" + c.dir + "/pipe", "CUDA_MPS_LOG_DIRECTORY=" + c.dir + "/log",
	}
	return cmd
}

func (c mpsControl) ask(commands string) (string, error) {
	cmd := c.command()
	cmd.Stdin = strings.NewReader(commands)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// start runs a daemon and returns when it answers.
func (c mpsControl) start(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	must(t, os.MkdirAll(c.dir+"/pipe", 0o755))
	watch, err := fsnotify.NewWatcher()
	must(t, err)
	defer watch.Close()
	must(t, watch.Add(c.dir+"/pipe"))
	cmd := c.command(append([]string{"-f"}, args...)...)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	})
	for event := range watch.Events {
		if filepath.Base(event.Name) == "control" && event.Has(fsnotify.Create) {
			break
		}
	}
	return cmd
}

func TestMPSControlSpeaksTheDaemonsProtocol(t *testing.T) {
	for name, shell := range shells(t) {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "t4")
			c := mpsControl{shell, t.TempDir(), filepath.Join(m.DriverRoot(), "usr/bin/nvidia-cuda-mps-control")}
			if out, err := c.ask("get_server_list\n"); err == nil || !strings.Contains(out, "Cannot find MPS control daemon") {
				t.Errorf("without a daemon it says %q, %v", out, err)
			}
			daemon := c.start(t, "-multiuser-server")
			for _, test := range []struct{ commands, want string }{
				{"get_server_list\n", ""},
				{"get_default_active_thread_percentage\n", "100.0\n"},
				{"set_default_active_thread_percentage 30\nget_default_active_thread_percentage\n", "30.0\n30.0\n"},
				{"set_default_active_thread_percentage 101\n", "Invalid percentage\n"},
				{"reticulate *\n", "Unrecognized command: reticulate *\n"},
			} {
				out, err := c.ask(test.commands)
				if err != nil || out != test.want {
					t.Errorf("%q: %q, %v; want %q", test.commands, out, err, test.want)
				}
			}
			out, err := c.ask("quit -t 5\n")
			must(t, err)
			if err := daemon.Wait(); err != nil || out != "" {
				t.Errorf("quit says %q, and the daemon ends with %v", out, err)
			}
			left, err := os.ReadDir(c.dir + "/pipe")
			if err != nil || len(left) > 0 {
				t.Errorf("the daemon left %v, %v", left, err)
			}
		})
	}
}

func TestMPSControlAnswersEachOfManyClients(t *testing.T) {
	for name, shell := range shells(t) {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "t4")
			c := mpsControl{shell, t.TempDir(), filepath.Join(m.DriverRoot(), "usr/bin/nvidia-cuda-mps-control")}
			c.start(t)
			results := make(chan error)
			for _, word := range []string{"a", "b", "c", "d", "e", "f"} {
				go func() {
					out, err := c.ask(word + "\n")
					if want := "Unrecognized command: " + word + "\n"; err == nil && out != want {
						err = errors.New(out)
					}
					results <- err
				}()
			}
			for range 6 {
				if err := <-results; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestMPSControlEndsWhenTerminated(t *testing.T) {
	for name, shell := range shells(t) {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "t4")
			c := mpsControl{shell, t.TempDir(), filepath.Join(m.DriverRoot(), "usr/bin/nvidia-cuda-mps-control")}
			daemon := c.start(t)
			must(t, daemon.Process.Signal(os.Interrupt))
			if err := daemon.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNvidiaSmiSetsTimeSlices(t *testing.T) {
	for name, shell := range shells(t) {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "t4:2")
			must(t, m.LoseGPU("1"))
			gpus := uuids(t, m)
			smi := func(args ...string) (string, error) {
				argv := append(slices.Clone(shell), append([]string{filepath.Join(m.DriverRoot(), "usr/bin/nvidia-smi"), "compute-policy"}, args...)...)
				out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
				return string(out), err
			}
			want := func(slice string) {
				t.Helper()
				if got, err := m.TimeSlice(gpus[0]); err != nil || got != slice {
					t.Errorf("time slice %q, %v; want %q", got, err, slice)
				}
			}
			want("0")
			out, err := smi("-i", gpus[0], "--set-timeslice", "3")
			if err != nil || !strings.Contains(out, gpus[0]) || !strings.Contains(out, "Long") {
				t.Errorf("it says %q, %v", out, err)
			}
			want("3")
			// A driver root that is made again is that of the same hardware.
			if _, err := Create(m.Dir(), Spec{Node: "node-a", GPUs: []string{"t4"}}); err != nil {
				t.Fatal(err)
			}
			want("3")
			if _, err := smi("-i", "0", "--set-timeslice=1"); err != nil {
				t.Error(err)
			}
			want("1")
			for _, args := range [][]string{
				{"-i", gpus[0], "--set-timeslice", "4"}, {"-i", gpus[0]}, {"-i", gpus[1], "--set-timeslice", "1"},
				{"-i", "GPU-unknown", "--set-timeslice", "1"}, {"--reset"},
			} {
				if out, err := smi(args...); err == nil || out == "" {
					t.Errorf("%q: %q, %v", args, out, err)
				}
			}
			want("1")
		})
	}
}

// A container may look at time slices, not set them.
func TestNvidiaSmiOfAContainerSetsNoTimeSlice(t *testing.T) {
	m := newMachine(t, "t4")
	gpus := summary(t, m).GPUs
	dev := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dev, "nvidia0"), nil, 0o644))
	out, err := runSmi(t, m, dev, "compute-policy", "-i", gpus[0].UUID, "--set-timeslice", "1")
	if err == nil || !strings.Contains(out, "Insufficient Permissions") {
		t.Errorf("it says %q, %v", out, err)
	}
	out, err = runSmi(t, m, dev, "compute-policy", "-l")
	if err != nil || !strings.Contains(out, "Default") {
		t.Errorf("it says %q, %v", out, err)
	}
}
