// Command kube is Kubernetes in one program: the API server, controller
// manager, scheduler, kubelet and kubectl of the release that the e2e module
// requires. One binary links once and shares its code between the processes of
// the local cluster.
//
//	kube kubelet --help
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = []struct {
	name string
	make func() *cobra.Command
}{
	{"kube-apiserver", apiserver.NewAPIServerCommand},
	{"kube-controller-manager", controllermanager.NewControllerManagerCommand},
	{"kube-scheduler", func() *cobra.Command { return scheduler.NewSchedulerCommand() }},
	{"kubelet", func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }},
	{"kubectl", kubectl.NewDefaultKubectlCommand},
}

func main() {
	var names []string
	for _, p := range programs {
		names = append(names, p.name)
		if len(os.Args) > 1 && os.Args[1] == p.name {
			os.Args = os.Args[1:]
			os.Exit(cli.Run(p.make()))
		}
	}
	fmt.Fprintf(os.Stderr, "kube: first argument must be one of: %s\n", strings.Join(names, ", "))
	os.Exit(2)
}
