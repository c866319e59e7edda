package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"apportion.dev/apportion/e2e/chart"
	"apportion.dev/apportion/e2e/cluster"
	"apportion.dev/apportion/e2e/image"
)

const kindName = "apportion"

// kindConfig is a cluster of two nodes whose container runtime reads CDI specs,
// as kind's does by default.
const kindConfig = `kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
- role: control-plane
- role: worker
- role: worker
`

// kindCluster is a cluster in Docker, made by kind.
type kindCluster struct{}

func (k *kindCluster) up(ctx context.Context) error {
	if output, err := exec.CommandContext(ctx, "docker", "info").CombinedOutput(); err != nil {
		return fmt.Errorf("kind needs a running Docker: %w: %s; without one use the local cluster (DEMO_CLUSTER=local)", err, bytes.TrimSpace(output))
	}
	existing, err := k.kind(ctx, nil, "get", "clusters")
	if err != nil {
		return err
	}
	if !strings.Contains("\n"+string(existing), "\n"+kindName+"\n") {
		fmt.Println("Creating a kind cluster; this takes minutes")
		if _, err := k.kind(ctx, strings.NewReader(kindConfig), "create", "cluster", "--name", kindName, "--config", "-", "--wait", "3m"); err != nil {
			return err
		}
	}
	out := filepath.Join("..", "bin")
	work, err := cluster.BuildBusybox(ctx, out, os.Stdout)
	if err != nil {
		return err
	}
	// The programs of the fake machines' driver are scripts. BuildBusybox made sure of it.
	shell, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("find the program busybox: %w", err)
	}
	driver, err := image.BuildFakeDriver(ctx, "..", out, shell, os.Stdout)
	if err != nil {
		return err
	}
	for _, tar := range []string{driver, work} {
		if _, err := k.kind(ctx, nil, "load", "image-archive", tar, "--name", kindName); err != nil {
			return err
		}
	}
	name, tag, _ := strings.Cut(image.DriverName, ":")
	manifests, err := chart.Render(filepath.Join("..", "deployments", "helm", "apportion"),
		chart.Release{Name: cluster.DriverRelease, Namespace: cluster.DriverNamespace}, map[string]any{
			"image": map[string]any{"repository": name, "tag": tag, "pullPolicy": "Never"},
			"fake": map[string]any{
				"enabled": true, "driverVersion": driverVersion,
				"gpus": kindName + "-worker=" + firstNodeGPUs + ";*=" + otherNodeGPUs,
			},
		})
	if err != nil {
		return err
	}
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + cluster.DriverNamespace + "\n"
	if _, err := k.kubectl(ctx, append([]byte(namespace), manifests...), "apply", "--server-side", "--filename", "-"); err != nil {
		return err
	}
	_, err = k.kubectl(ctx, nil, "rollout", "status", "--namespace", cluster.DriverNamespace, "daemonset", "--timeout", "3m")
	return err
}

func (k *kindCluster) down(ctx context.Context) error {
	_, err := k.kind(ctx, nil, "delete", "cluster", "--name", kindName)
	return err
}

// kind runs the kind that the module pins.
func (k *kindCluster) kind(ctx context.Context, input io.Reader, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "go", append([]string{"tool", "kind"}, args...)...)
	command.Dir, command.Stdin = "..", input
	return output(command)
}

func (k *kindCluster) kubectl(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "kubectl", append([]string{"--context", "kind-" + kindName}, args...)...)
	command.Stdin = bytes.NewReader(input)
	return output(command)
}

func (k *kindCluster) howToCall() string { return "kubectl --context kind-" + kindName }

// output runs a program and returns what it printed; its error has what it said.
func output(command *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}
