package main

import (
	"context"
	"fmt"
	"os"

	"apportion.dev/apportion/e2e/cluster"
)

// localCluster is the cluster of package cluster: no Docker, no registry.
type localCluster struct{ cluster *cluster.Cluster }

func (l *localCluster) up(ctx context.Context) (err error) {
	if l.cluster, err = cluster.Up(ctx, cluster.Options{Log: os.Stdout, Nodes: []cluster.NodeSpec{
		{Name: "node-a", FakeGPUs: firstNodeGPUs},
		{Name: "node-b", FakeGPUs: otherNodeGPUs},
	}}); err != nil {
		return err
	}
	return l.cluster.InstallDriver(ctx, map[string]any{"fake": map[string]any{"driverVersion": driverVersion}})
}

func (l *localCluster) down(ctx context.Context) error {
	return cluster.Down(ctx, cluster.DefaultDir, os.Stdout)
}

func (l *localCluster) kubectl(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	return l.cluster.RunKubectl(ctx, input, args...)
}

func (l *localCluster) howToCall() string { return fmt.Sprint(l.cluster.Kubectl()) }
