package main

import (
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"apportion.dev/apportion/pkg/ownership/report"
)

// ownersOptions are the flags of "owners".
type ownersOptions struct {
	kubeconfig string
	context    string
	driverName string
	socket     string
	node       string
	namespace  string
	pod        string
	gpu        string
	by         *outputFlag
	output     *outputFlag
	watch      bool

	// program is what the program is called, for hints.
	program string
	surroundings
}

// surroundings are what the command meets outside of the program.
type surroundings struct {
	// connect makes the clients of the cluster that the flags name.
	connect func(kubeconfig, context string) (*clients, error)
	// dial makes a client of the ownership service behind a socket.
	dial func(socket string) (report.NodeClient, error)
	now  func() time.Time
	// terminal gives the size of the terminal to which is written, in characters;
	// ok is false for what is none.
	terminal func(io.Writer) (width, height int, ok bool)
}

func newOwnersCommand(name string) *cobra.Command {
	return newOwnersCommandIn(name, surroundings{
		connect: connect, dial: report.DialNode, now: time.Now, terminal: terminalSize,
	})
}

func newOwnersCommandIn(name string, s surroundings) *cobra.Command {
	o := &ownersOptions{
		program: name, surroundings: s,
		output: newOutputFlag(report.Table, report.Wide, report.JSON, report.YAML),
		by:     &outputFlag{allowed: []string{report.ByNamespace, report.ByWorkload, report.ByNode}},
	}
	cmd := &cobra.Command{
		Use:   "owners",
		Short: "Show who holds which GPU, partition or share",
		Long: `Shows which claims hold which GPUs, partitions and shares, and the pods and containers
that use them: of the whole cluster or, with --node, of one node, from the API server;
with --socket, of the node on which it runs, from the node driver itself.

GPUS is the part of a GPU that is held, MEMORY the memory of that part. A claim that
several pods use has a line for each. In a terminal that is too narrow for the table,
its columns stand below each other. --by sums up the parts of GPUs, and SHARE is the
percentage of all GPUs, or of a node's.`,
		Example: lines(
			"# Who holds what?",
			name+" owners",
			"# Who is on this GPU, or on a partition of it?",
			name+" owners --gpu GPU-4f3a1b2c-8d0e-4c55-9d3b-0f6a7c1e2d34",
			"# Where does this pod run, and who else is there?",
			name+" owners --pod team-a/train-0 -o wide",
			"# How much does each team use, and how much is free?",
			name+" owners --by namespace",
			"# On a node, without the API server",
			name+" owners --socket /var/lib/kubelet/plugins/gpu.apportion.dev/ownership/ownership.sock",
		),
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			return harmless(o.run(cmd))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of the kubeconfig file (environment: KUBECONFIG).")
	flags.StringVar(&o.context, "context", "", "Context of the kubeconfig file.")
	flags.StringVar(&o.driverName, "driver-name", "gpu.apportion.dev", "Name of the DRA driver.")
	flags.StringVar(&o.socket, "socket", "", "Socket of the node driver's ownership service, in place of the API server.")
	flags.StringVar(&o.node, "node", "", "Only the GPUs of this node.")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Only claims of this namespace; those of all by default.")
	flags.StringVar(&o.pod, "pod", "", "Only what this pod uses, as name or namespace/name.")
	flags.StringVar(&o.gpu, "gpu", "", "Only this GPU with its partitions and shares, or only this partition: UUID or device name.")
	flags.Var(o.by, "by", "Sum up by namespace, workload or node.")
	flags.VarP(o.output, "output", "o", "Form of the output.")
	flags.BoolVarP(&o.watch, "watch", "w", false, "Show it again whenever something has changed.")
	return cmd
}

// complete checks the flags and fills in what follows from them.
func (o *ownersOptions) complete(cmd *cobra.Command) error {
	for _, name := range []string{"kubeconfig", "context", "node", "driver-name"} {
		if o.socket != "" && cmd.Flags().Changed(name) {
			return usagef("give only one of --socket and --%s", name)
		}
	}
	// A variable that is not set must not show what nobody asked for.
	for _, name := range []string{"socket", "node", "namespace", "pod", "gpu", "driver-name"} {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usagef("--%s is empty: give a value, or leave it out", name)
		}
	}
	if o.by.value != "" && (o.pod != "" || o.gpu != "") {
		return usagef("--by cannot be combined with --pod and --gpu, as what they leave out would be missing from the sums")
	}
	return o.completePod()
}

func (o *ownersOptions) completePod() error {
	if namespace, name, qualified := strings.Cut(o.pod, "/"); qualified {
		if namespace == "" || name == "" || strings.Contains(name, "/") {
			return usagef("--pod %q is neither a name nor namespace/name", o.pod)
		}
		if o.namespace != "" && o.namespace != namespace {
			return usagef("--pod %q is not in --namespace %q", o.pod, o.namespace)
		}
		// Nothing else need be read.
		o.namespace = namespace
	}
	return nil
}

func (o *ownersOptions) run(cmd *cobra.Command) error {
	options := &report.Options{
		Driver: o.driverName, Namespace: o.namespace, Node: o.node, Pod: o.pod, GPU: o.gpu,
		By: o.by.value, Output: o.output.value, Program: o.program, Now: o.now, Terminal: o.terminal,
	}
	source, err := o.source(options)
	if err != nil {
		return err
	}
	if o.watch {
		return options.Watch(cmd.Context(), source, cmd.OutOrStdout())
	}
	return options.Show(cmd.Context(), source, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

func (o *ownersOptions) source(options *report.Options) (report.Source, error) {
	if o.socket != "" {
		client, err := o.dial(o.socket)
		if err != nil {
			return nil, err
		}
		return &report.Node{Client: client, Socket: o.socket, Namespace: o.namespace}, nil
	}
	clients, err := o.connect(o.kubeconfig, o.context)
	if err != nil {
		return nil, err
	}
	return &report.Cluster{Typed: clients.typed, Metadata: clients.metadata, Options: options}, nil
}

// terminalSize is [surroundings.terminal].
func terminalSize(out io.Writer) (width, height int, ok bool) {
	file, isFile := out.(*os.File)
	if !isFile {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	return width, height, err == nil
}
