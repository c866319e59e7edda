// Package promtest runs a real Prometheus for tests, which scrapes what it is told to
// and answers queries.
//
// It knows how Prometheus is configured, started and asked, and nothing of what is
// scraped.
package promtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/api"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Options say what to run. All fields must be set.
type Options struct {
	// Binary is the path of the program.
	Binary string
	// Dir is a folder for its configuration, data and log.
	Dir string
	// Interval is how often each target is scraped, and how long a scrape may take.
	Interval time.Duration
	Targets  []Target
}

// Target is one endpoint to scrape.
type Target struct {
	// Job is the value of the label job. Targets may have the same.
	Job string
	// Address is the host and port; the path is /metrics.
	Address string
}

// Server is a Prometheus that runs until Stop.
type Server struct {
	options Options
	http    *http.Client
	client  api.Client
	stop    context.CancelFunc
	// ended is closed when the process has ended, with failure set before.
	ended   chan struct{}
	failure error
	log     *logFile
}

// grace is how long Prometheus may take to end when it is told to.
const grace = 20 * time.Second

// Start starts Prometheus and returns when it answers. It listens on a free port of
// the loopback. If this process is killed, Prometheus is too.
func Start(ctx context.Context, o Options) (*Server, error) {
	config := filepath.Join(o.Dir, "prometheus.yml")
	if err := writeConfig(config, o); err != nil {
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	log, err := newLogFile(filepath.Join(o.Dir, "prometheus.log"))
	if err != nil {
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	// It outlives the start, not the test.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	cmd := exec.CommandContext(life, o.Binary,
		"--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(o.Dir, "data"),
		"--web.listen-address=127.0.0.1:0",
		"--log.format=json", // one that is read here
	)
	cmd.Dir = o.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	s := &Server{
		options: o, stop: stop, ended: make(chan struct{}), log: log,
		// Targets and this server are near, whatever proxy is set.
		http: &http.Client{Transport: &http.Transport{}},
	}
	go s.run(cmd)
	if err := s.waitReady(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// run runs the process to its end. The kernel kills it when the thread that started
// it ends, so that one is kept.
func (s *Server) run(cmd *exec.Cmd) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.ended)
	err := cmd.Run()
	if errors.Is(err, context.Canceled) {
		err = nil // It ended well, when it was told to.
	}
	s.failure = errors.Join(err, s.log.close())
}

// waitReady waits until Prometheus says that it is ready.
func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case address := <-s.log.address:
		var err error
		if s.client, err = api.NewClient(api.Config{Address: "http://" + address, Client: s.http}); err != nil {
			return fmt.Errorf("start Prometheus: %w", err)
		}
	case <-s.ended:
		return fmt.Errorf("start Prometheus: it ended: %w%s", s.failure, s.log.tail())
	case <-ctx.Done():
		return fmt.Errorf("start Prometheus: it does not listen: %w%s", ctx.Err(), s.log.tail())
	}
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-s.ended:
			return false, fmt.Errorf("start Prometheus: it ended: %w%s", s.failure, s.log.tail())
		default:
		}
		last = s.ready(ctx)
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("start Prometheus: it is not ready: %w%s", last, s.log.tail())
	}
	return err
}

func (s *Server) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.client.URL("/-/ready", nil).String(), nil)
	if err != nil {
		return err
	}
	response, body, err := s.client.Do(ctx, request)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return err
}

// Stop ends Prometheus and waits for its end. The data and the log stay in the folder.
// It may be called several times.
func (s *Server) Stop() error {
	s.stop()
	<-s.ended
	s.http.CloseIdleConnections()
	if s.failure != nil {
		return fmt.Errorf("stop Prometheus: %w%s", s.failure, s.log.tail())
	}
	return nil
}

// writeConfig writes what Prometheus scrapes; JSON is YAML.
func writeConfig(path string, o Options) error {
	type targets struct {
		Targets []string `json:"targets"`
	}
	type job struct {
		Name string `json:"job_name"`
		// HonorLabels keeps the pod of a series, as a ServiceMonitor of the chart does.
		HonorLabels   bool      `json:"honor_labels"`
		StaticConfigs []targets `json:"static_configs"`
	}
	var config struct {
		Global struct {
			ScrapeInterval string `json:"scrape_interval"`
			ScrapeTimeout  string `json:"scrape_timeout"`
		} `json:"global"`
		ScrapeConfigs []job `json:"scrape_configs"`
	}
	interval := fmt.Sprintf("%dms", o.Interval.Milliseconds())
	config.Global.ScrapeInterval, config.Global.ScrapeTimeout = interval, interval
	index := map[string]int{}
	for _, t := range o.Targets {
		i, known := index[t.Job]
		if !known {
			i = len(config.ScrapeConfigs)
			index[t.Job] = i
			config.ScrapeConfigs = append(config.ScrapeConfigs, job{Name: t.Job, HonorLabels: true, StaticConfigs: []targets{{}}})
		}
		static := &config.ScrapeConfigs[i].StaticConfigs[0]
		static.Targets = append(static.Targets, t.Address)
	}
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// logFile keeps what Prometheus logs, and finds in it where it listens.
type logFile struct {
	address chan string

	mu   sync.Mutex
	file *os.File
	line []byte
	last []string
}

func newLogFile(path string) (*logFile, error) {
	file, err := os.Create(path)
	return &logFile{address: make(chan string, 1), file: file}, err
}

func (l *logFile) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = append(l.line, data...)
	for {
		line, rest, ok := bytes.Cut(l.line, []byte("\n"))
		if !ok {
			break
		}
		l.read(string(line))
		l.line = bytes.Clone(rest)
	}
	return l.file.Write(data)
}

func (l *logFile) read(line string) {
	const lines = 5
	l.last = append(l.last[max(0, len(l.last)+1-lines):], line)
	var said struct{ Msg, Address string }
	if json.Unmarshal([]byte(line), &said) != nil || said.Msg != "Listening on" {
		return
	}
	select {
	case l.address <- said.Address:
	default: // It is known already.
	}
}

// tail is the end of the log as a part of an error message.
func (l *logFile) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("; the end of %s:\n  %s", l.file.Name(), strings.Join(l.last, "\n  "))
}

func (l *logFile) close() error { return l.file.Close() }
