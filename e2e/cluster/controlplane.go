package cluster

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// controlPlaneName is the machine of etcd and the three central programs.
const controlPlaneName = "control-plane"

// The programs of the control plane.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// inClusterServer is the API server as machines and pods see it.
const inClusterServer = "https://" + apiServerAddress

func (c *Cluster) controlPlaneDir() string { return filepath.Join(c.dir, controlPlaneName) }

// writeControlPlaneFiles makes the certificates and kubeconfigs of all programs.
func (c *Cluster) writeControlPlaneFiles() (*authority, error) {
	ca, err := newAuthority(c.controlPlaneDir())
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		ca.writeKeyPair("service-account"),
		ca.write("apiserver", pkix.Name{CommonName: apiServer},
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc."+clusterDomain,
			"localhost", "127.0.0.1", apiServerAddress, c.network.controlPlane()),
		ca.write("kubelet-client", pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}}),
		ca.writeKubeconfig(c.programKubeconfig(controllerManager), inClusterServer, pkix.Name{CommonName: "system:" + controllerManager}),
		ca.writeKubeconfig(c.programKubeconfig(scheduler), inClusterServer, pkix.Name{CommonName: "system:" + scheduler}),
		ca.writeKubeconfig(c.Kubeconfig(), "https://"+c.network.controlPlane(), pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}),
	)
	return ca, err
}

func (c *Cluster) programKubeconfig(program string) string {
	return filepath.Join(c.controlPlaneDir(), program+".kubeconfig")
}

func (c *Cluster) etcdArguments() []string {
	return []string{
		c.binary(etcd),
		"--name=" + controlPlaneName,
		"--data-dir=" + filepath.Join(c.controlPlaneDir(), "etcd"),
		"--unsafe-no-fsync", // the data need not outlive a power cut
		"--log-level=warn",
	}
}

func (c *Cluster) apiServerArguments() []string {
	file := func(name string) string { return filepath.Join(c.controlPlaneDir(), name) }
	return c.withFeatureGates([]string{
		c.binary(kube), apiServer,
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0",
		"--secure-port=443",
		"--advertise-address=" + apiServerAddress,
		"--service-cluster-ip-range=" + serviceRange,
		"--enable-aggregator-routing", // webhooks are called at their pods, as no kube-proxy serves Services
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",
		"--client-ca-file=" + file("ca.crt"),
		"--tls-cert-file=" + file("apiserver.crt"),
		"--tls-private-key-file=" + file("apiserver.key"),
		"--kubelet-certificate-authority=" + file("ca.crt"),
		"--kubelet-client-certificate=" + file("kubelet-client.crt"),
		"--kubelet-client-key=" + file("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc." + clusterDomain,
		"--service-account-key-file=" + file("service-account.pub"),
		"--service-account-signing-key-file=" + file("service-account.key"),
	})
}

func (c *Cluster) controllerManagerArguments() []string {
	kubeconfig := c.programKubeconfig(controllerManager)
	return c.withFeatureGates([]string{
		c.binary(kube), controllerManager,
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--use-service-account-credentials",
		"--kube-api-qps=200", // the default makes its start take seconds longer
		"--kube-api-burst=400",
		"--flex-volume-plugin-dir=" + filepath.Join(c.controlPlaneDir(), "volume-plugins"),
		"--service-account-private-key-file=" + filepath.Join(c.controlPlaneDir(), "service-account.key"),
		"--root-ca-file=" + filepath.Join(c.controlPlaneDir(), "ca.crt"),
	})
}

func (c *Cluster) schedulerArguments() []string {
	kubeconfig := c.programKubeconfig(scheduler)
	return c.withFeatureGates([]string{
		c.binary(kube), scheduler,
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
	})
}

// startControlPlane boots the machine and starts its programs; it returns when the
// API server is ready.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	programs := []struct {
		name      string
		arguments []string
	}{
		{etcd, c.etcdArguments()},
		{apiServer, c.apiServerArguments()}, // waits for etcd by itself
		{controllerManager, c.controllerManagerArguments()},
		{scheduler, c.schedulerArguments()},
	}
	for _, program := range programs {
		if program.name == controllerManager {
			if err := c.waitAPIServer(ctx); err != nil {
				return err
			}
		}
		if err := c.controlPlane.launch(c.process(program.name), program.arguments...); err != nil {
			return err
		}
	}
	return nil
}

// waitAPIServer waits until the API server says that it is ready.
func (c *Cluster) waitAPIServer(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.waitReady(ctx, time.Minute, func(ctx context.Context) error {
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}, c.process(etcd), c.process(apiServer))
}

// attemptPatience is how long one question may take to be answered: a program that
// is just starting may take a connection and never answer.
const attemptPatience = 3 * time.Second

// waitReady asks until ready returns no error. It gives up when one of the programs
// that are waited for has ended: the end of its log says why. The last of them is
// the one that errors name.
func (c *Cluster) waitReady(ctx context.Context, patience time.Duration, ready func(context.Context) error, programs ...process) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		for _, program := range programs {
			if program.pid() == 0 {
				return false, fmt.Errorf("%s ended%s", program.name, program.logTail())
			}
		}
		attempt, cancel := context.WithTimeout(ctx, attemptPatience)
		defer cancel()
		last = ready(attempt)
		return last == nil, nil
	})
	waited := programs[len(programs)-1]
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait for %s: %w", waited.name, ctx.Err())
	case wait.Interrupted(err):
		return fmt.Errorf("%s is not ready: %w%s", waited.name, last, waited.logTail())
	}
	return err
}
