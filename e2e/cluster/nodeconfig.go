package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// PauseImage holds the namespaces of each pod.
const PauseImage = "apportion.dev/pause:dev"

const containerdSocket = "/run/containerd/containerd.sock"

// containerdConfig is the configuration of the node's containerd. Its folders are
// the standard ones, which are the node's own. The
// plugins that would make others are off. restrict_oom_score_adj and
// disable_apparmor are for hosts that are themselves confined.
func (n *Node) containerdConfig() string {
	return fmt.Sprintf(`version = 3
disabled_plugins = ['io.containerd.internal.v1.opt', 'io.containerd.nri.v1.nri', 'io.containerd.tracing.processor.v1.otlp']
[plugins.'io.containerd.cri.v1.images']
  snapshotter = %[1]q
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %[2]q
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = ['/etc/cdi', '/var/run/cdi']
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%[3]q]
    conf_dir = %[4]q
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = 'io.containerd.runc.v2'
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        SystemdCgroup = false
`, n.cluster.snapshotter, PauseImage, n.cluster.binDir, n.config("cni"))
}

// networkConfig joins each pod with its node by a pair of interfaces; the pod's
// address comes from the node's own range.
func (n *Node) networkConfig() string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "apportion",
  "plugins": [
    {
      "type": "ptp",
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    }
  ]
}
`, n.cluster.network.nodePods(n.index))
}

func (n *Node) kubeletConfig() ([]byte, error) {
	config := kubeletconfig.KubeletConfiguration{
		TypeMeta:                 metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		TLSCertFile:              n.config("kubelet.crt"),
		TLSPrivateKeyFile:        n.config("kubelet.key"),
		Authentication:           kubeletconfig.KubeletAuthentication{X509: kubeletconfig.KubeletX509Authentication{ClientCAFile: n.config("ca.crt")}},
		ContainerRuntimeEndpoint: "unix://" + containerdSocket,
		ClusterDomain:            clusterDomain,
		// No DNS server runs there: look-ups fail at once. Without an address the
		// kubelet warns of each pod.
		ClusterDNS:             []string{dnsAddress},
		VolumePluginDir:        "/var/lib/kubelet/volume-plugins",
		CgroupDriver:           "cgroupfs",
		CgroupRoot:             "/" + groupName(n.cluster.dir) + "/" + n.Name,
		EnforceNodeAllocatable: []string{},
		FailCgroupV1:           ptr.To(false),
		FailSwapOn:             ptr.To(false),
		MakeIPTablesUtilChains: ptr.To(false), // for kube-proxy, which there is none of
		FeatureGates:           n.cluster.options.FeatureGates,
		// The host's disk and memory are none of the cluster's business: nothing is
		// evicted, and no image is removed that nobody could pull again.
		EvictionHard:                map[string]string{"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
		ImageGCHighThresholdPercent: ptr.To[int32](100),
		ImageGCLowThresholdPercent:  ptr.To[int32](99),
		// A restarted container of a test comes back soon.
		CrashLoopBackOff: kubeletconfig.CrashLoopBackOffConfig{MaxContainerRestartPeriod: &metav1.Duration{Duration: 10 * time.Second}},
	}
	return yaml.Marshal(config)
}

func (n *Node) kubeletArguments() []string {
	arguments := []string{
		n.cluster.binary(kube), "kubelet",
		"--config=" + n.config("kubelet.yaml"),
		"--kubeconfig=" + n.config("kubeconfig"),
		"--hostname-override=" + n.Name,
		"--node-ip=" + n.Address(),
		"--v=2",
	}
	if len(n.labels) > 0 {
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(n.labels)) {
			labels = append(labels, key+"="+n.labels[key])
		}
		arguments = append(arguments, "--node-labels="+strings.Join(labels, ","))
	}
	return arguments
}
