package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// DefaultDir is where a cluster keeps its files. It is on a disk, not in /run,
// because images and containers may need more room than a tmpfs has; and it is
// short, because the path of a socket has at most 107 bytes.
const DefaultDir = "/var/lib/apportion-cluster"

// maxDir is the longest folder, in bytes, that leaves the sockets below a node's
// /var/lib/kubelet/plugins_registry room for their names.
const maxDir = 32

// Options say what cluster to run. The zero value is a cluster of two nodes with
// different fake GPUs.
type Options struct {
	// Dir is where the cluster keeps its files; DefaultDir by default. There is one
	// cluster for each folder.
	Dir string
	// SourceDir is the root of the repository; by default the one around the
	// current folder.
	SourceDir string
	// BinDir is where the programs are built, and kept for the next time;
	// e2e/.bin of the repository by default.
	BinDir string
	// Nodes are the cluster's nodes; DefaultNodes by default.
	Nodes []NodeSpec
	// FeatureGates are set in all programs of Kubernetes.
	FeatureGates map[string]bool
	// Log is told what is being done, a line each; discarded by default.
	Log io.Writer
}

// NodeSpec is one node to run.
type NodeSpec struct {
	Name string `json:"name"`
	// FakeGPUs are the products of the node's fake GPUs, such as
	// "h100-sxm5-80gb:2". Only InstallDriver uses them.
	FakeGPUs string            `json:"fakeGPUs,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
}

// DefaultNodes are two nodes with different products.
func DefaultNodes() []NodeSpec {
	return []NodeSpec{
		{Name: "node-a", FakeGPUs: "h100-sxm5-80gb:8"},
		{Name: "node-b", FakeGPUs: "a100-sxm4-40gb:2"},
	}
}

// Cluster is a running cluster, or one that is being started or stopped.
type Cluster struct {
	dir          string
	binDir       string
	sourceDir    string
	options      specification
	network      network
	snapshotter  string
	controlPlane machine
	nodes        []*Node
	log          io.Writer
}

// specification is what of the options makes the cluster what it is.
type specification struct {
	Nodes        []NodeSpec      `json:"nodes"`
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
}

// state is what a cluster's folder says about it. It is written before anything is
// made, so that whatever a killed program left behind can be found.
type state struct {
	specification
	BinDir    string `json:"binDir"`
	SourceDir string `json:"sourceDir"`
	Network   int    `json:"network"`
}

// Names in a cluster's folder.
const (
	stateFile  = "cluster.json"
	logsFolder = "logs"
	pidsFolder = "pids"
)

func statePath(dir string) string { return filepath.Join(dir, stateFile) }

// ErrNotUp says that no cluster is up in a folder.
var ErrNotUp = errors.New("no cluster is up")

// Attach returns the cluster that is up in a folder (DefaultDir if empty), or
// ErrNotUp. It does not check whether all its programs run: Status does.
func Attach(dir string) (*Cluster, error) {
	if dir == "" {
		dir = DefaultDir
	}
	recorded, err := readState(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s: start one with localcluster up", ErrNotUp, dir)
	} else if err != nil {
		return nil, err
	}
	c := newCluster(dir, recorded, io.Discard)
	if c.controlPlane.holder.pid() == 0 {
		return nil, fmt.Errorf("%w in %s any more: start one with localcluster up", ErrNotUp, dir)
	}
	return c, nil
}

func readState(dir string) (state, error) {
	var recorded state
	data, err := os.ReadFile(statePath(dir))
	if err != nil {
		return recorded, err
	}
	if err := json.Unmarshal(data, &recorded); err != nil {
		return recorded, fmt.Errorf("read %s: %w", statePath(dir), err)
	}
	return recorded, nil
}

func newCluster(dir string, s state, log io.Writer) *Cluster {
	c := &Cluster{
		dir:          dir,
		binDir:       s.BinDir,
		sourceDir:    s.SourceDir,
		options:      s.specification,
		network:      network{number: s.Network},
		controlPlane: newMachine(dir, s.BinDir, controlPlaneName),
		log:          log,
	}
	for index, spec := range s.Nodes {
		c.nodes = append(c.nodes, &Node{
			Name: spec.Name, FakeGPUs: spec.FakeGPUs, labels: spec.Labels,
			cluster: c, index: index, machine: newMachine(dir, s.BinDir, spec.Name),
		})
	}
	return c
}

func (c *Cluster) writeState() error {
	data, err := json.MarshalIndent(state{
		specification: c.options, BinDir: c.binDir, SourceDir: c.sourceDir, Network: c.network.number,
	}, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(statePath(c.dir), append(data, '\n'), 0o644)
}

// Dir is the cluster's folder.
func (c *Cluster) Dir() string { return c.dir }

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// RESTConfig is the administrator's configuration for client-go, without client-side
// rate limits and without a proxy.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	return config, nil
}

func (c *Cluster) client() (*kubernetes.Clientset, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// Nodes are the cluster's nodes in the order of the options.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node returns a node by name, or nil.
func (c *Cluster) Node(name string) *Node {
	for _, node := range c.nodes {
		if node.Name == name {
			return node
		}
	}
	return nil
}

func (c *Cluster) process(name string) process { return process{name: name, dir: c.dir} }

func (c *Cluster) binary(name string) string { return filepath.Join(c.binDir, name) }

// machines lists all machines, the control plane's last.
func (c *Cluster) machines() []machine {
	var list []machine
	for _, node := range c.nodes {
		list = append(list, node.machine)
	}
	return append(list, c.controlPlane)
}

// processes lists all long-lived programs, in the order in which they are started.
func (c *Cluster) processes() []process {
	list := []process{c.controlPlane.holder}
	for _, name := range []string{etcd, apiServer, controllerManager, scheduler} {
		list = append(list, c.process(name))
	}
	for _, node := range c.nodes {
		list = append(list, node.machine.holder, node.containerd(), node.kubelet())
	}
	return list
}

func (c *Cluster) say(format string, values ...any) {
	// Progress is for the reader; that it cannot be written changes nothing.
	_, _ = fmt.Fprintf(c.log, format+"\n", values...)
}

// withDefaults checks the options and fills in what they leave out.
func (o Options) withDefaults() (Options, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	if len(o.Nodes) == 0 {
		o.Nodes = DefaultNodes()
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, err
	}
	o.Dir = dir
	if err := checkDir(dir); err != nil {
		return o, err
	}
	if err := checkNodes(o.Nodes); err != nil {
		return o, err
	}
	if o.SourceDir == "" {
		if o.SourceDir, err = findSource(); err != nil {
			return o, err
		}
	}
	if o.BinDir == "" {
		o.BinDir = filepath.Join(o.SourceDir, "e2e", ".bin")
	}
	o.BinDir, err = filepath.Abs(o.BinDir)
	return o, err
}

func checkDir(dir string) error {
	if len(dir) > maxDir {
		return fmt.Errorf("the cluster's folder %s is too long for the sockets in it: use one of at most %d bytes", dir, maxDir)
	}
	for _, folder := range nodeFolders {
		if dir == folder || strings.HasPrefix(dir, folder+"/") {
			return fmt.Errorf("the cluster's folder must not be in %s, which each node has for itself", folder)
		}
	}
	return nil
}

func (c *Cluster) matches(o Options) bool {
	return reflect.DeepEqual(c.options.Nodes, o.Nodes) && len(c.options.FeatureGates) == len(o.FeatureGates) &&
		(len(o.FeatureGates) == 0 || reflect.DeepEqual(c.options.FeatureGates, o.FeatureGates))
}
