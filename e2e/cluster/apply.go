package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kubectl is the path of a script that is kubectl for this cluster.
func (c *Cluster) Kubectl() string { return filepath.Join(c.dir, "kubectl") }

func (c *Cluster) writeKubectl() error {
	// The cluster is on this host, which no proxy must come between; and its cache
	// goes away with it.
	script := fmt.Sprintf("#!/bin/sh\nexport NO_PROXY='*' no_proxy='*' KUBECONFIG=%q\nexec %q kubectl --cache-dir=%q \"$@\"\n",
		c.Kubeconfig(), c.binary(kube), filepath.Join(c.dir, "kubectl-cache"))
	return writeFile(c.Kubectl(), []byte(script), 0o755)
}

// RunKubectl runs kubectl with input on its standard input (nil for none) and
// returns what it printed; the error, if any, holds what it printed on stderr.
func (c *Cluster) RunKubectl(ctx context.Context, input []byte, arguments ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Kubectl(), arguments...)
	cmd.Env = os.Environ()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// Apply applies the objects of a multi-document YAML, by server-side apply.
func (c *Cluster) Apply(ctx context.Context, manifests []byte) error {
	_, err := c.RunKubectl(ctx, manifests, "apply", "--server-side", "--force-conflicts", "-f", "-")
	return err
}

// Delete deletes the objects of a multi-document YAML and waits until they are gone.
func (c *Cluster) Delete(ctx context.Context, manifests []byte) error {
	_, err := c.RunKubectl(ctx, manifests, "delete", "--ignore-not-found", "-f", "-")
	return err
}
