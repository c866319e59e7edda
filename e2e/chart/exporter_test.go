package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// monitored are values with all that belongs to the exporter.
const monitored = "exporter: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}"

func exporterObjects(t *testing.T, r Release, values string) []runtime.Object {
	t.Helper()
	return component(t, decode(t, mustRender(t, r, values)), "exporter")
}

// TestExporterIsOne: the Service selects the pods, the ServiceMonitor the Service, and
// the alerts ask for the job that Prometheus makes of the Service's name.
func TestExporterIsOne(t *testing.T) {
	for _, test := range []struct {
		release      Release
		values, name string
	}{
		{release, monitored, "apportion-exporter"},
		{Release{Name: "prod", Namespace: "gpu-system"}, monitored, "prod-apportion-exporter"},
		{Release{Name: "a", Namespace: "b"}, "fullnameOverride: gpus\n" + monitored, "gpus-exporter"},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := exporterObjects(t, test.release, test.values)
			set, service := only[*appsv1.DaemonSet](t, objects), only[*corev1.Service](t, objects)
			monitor, rules := only[*serviceMonitor](t, objects), only[*prometheusRule](t, objects)
			pod := set.Spec.Template
			for _, object := range []metav1.Object{set, service, monitor, rules, only[*corev1.ServiceAccount](t, objects)} {
				if object.GetName() != test.name || object.GetNamespace() != test.release.Namespace {
					t.Errorf("%T is %s/%s, want %s/%s", object, object.GetNamespace(), object.GetName(), test.release.Namespace, test.name)
				}
			}
			if pod.Spec.ServiceAccountName != test.name {
				t.Errorf("the pods run as %s", pod.Spec.ServiceAccountName)
			}
			if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
				t.Error("the Service does not select the pods")
			}
			selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			for _, other := range every[*corev1.Service](decode(t, mustRender(t, test.release, test.values))) {
				if selector.Matches(labels.Set(other.Labels)) != (other.Name == test.name) {
					t.Errorf("the ServiceMonitor selects %s: %t", other.Name, other.Name != test.name)
				}
			}
			if port := monitor.Spec.Endpoints[0].Port; port != service.Spec.Ports[0].Name || service.Spec.Ports[0].TargetPort.StrVal != pod.Spec.Containers[0].Ports[0].Name {
				t.Errorf("the ServiceMonitor scrapes port %s, the Service has %+v, the pod %+v", port, service.Spec.Ports, pod.Spec.Containers[0].Ports)
			}
			for _, group := range rules.Spec.Groups {
				for _, rule := range group.Rules {
					if strings.Contains(rule.Expr, "up{") && !strings.Contains(rule.Expr, `up{job="`+test.name+`"}`) {
						t.Errorf("alert %s does not ask for job %s: %s", rule.Alert, test.name, rule.Expr)
					}
				}
			}
		})
	}
}

func TestExporterHasNoMoreRightsThanItNeeds(t *testing.T) {
	const data, machine = "/var/lib/kubelet/plugins/gpu.apportion.dev/ownership", "/var/lib/apportion/fake"
	for values, hostPaths := range map[string][]string{
		"":                      {data, "/", "/dev"},
		"fake: {enabled: true}": {data, machine, "/dev"},
	} {
		objects := exporterObjects(t, release, values)
		if rights := len(every[*rbacv1.ClusterRole](objects)) + len(every[*rbacv1.Role](objects)); rights > 0 {
			t.Errorf("values %q: the exporter has %d roles", values, rights)
		}
		spec := only[*appsv1.DaemonSet](t, objects).Spec.Template.Spec
		if *spec.AutomountServiceAccountToken || *only[*corev1.ServiceAccount](t, objects).AutomountServiceAccountToken {
			t.Errorf("values %q: the exporter gets a token", values)
		}
		if spec.HostNetwork || spec.HostIPC || !spec.HostPID {
			t.Errorf("values %q: namespaces of the host: network %t, IPC %t, PID %t; want PID only", values, spec.HostNetwork, spec.HostIPC, spec.HostPID)
		}
		if profile := spec.SecurityContext.SeccompProfile; profile == nil || profile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("values %q: seccomp profile %+v", values, profile)
		}
		// What makes the fake machine is as the plugin's.
		if diff := cmp.Diff(ofPlugin[*appsv1.DaemonSet](t, values).Spec.Template.Spec.InitContainers, spec.InitContainers); diff != "" {
			t.Errorf("values %q: init containers (-plugin +exporter):\n%s", values, diff)
		}
		if len(spec.Containers) != 1 {
			t.Fatalf("values %q: containers %+v", values, spec.Containers)
		}
		container := spec.Containers[0]
		if context := container.SecurityContext; !*context.Privileged || !*context.ReadOnlyRootFilesystem {
			t.Errorf("values %q: security context %+v", values, context)
		}
		var paths []string
		for _, mount := range container.VolumeMounts {
			// The container runtime makes mount points in /dev.
			if !mount.ReadOnly && mount.MountPath != "/dev" {
				t.Errorf("values %q: the exporter can write to %s", values, mount.MountPath)
			}
			at := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
			paths = append(paths, spec.Volumes[at].HostPath.Path)
		}
		if diff := cmp.Diff(hostPaths, paths); diff != "" {
			t.Errorf("values %q: folders of the host (-want +got):\n%s", values, diff)
		}
	}
}

// TestExporterFindsThePlugin: both say the same of where the socket is, and the
// exporter sees the folder at that path.
func TestExporterFindsThePlugin(t *testing.T) {
	for _, test := range []struct{ values, data string }{
		{"", "/var/lib/kubelet/plugins/gpu.apportion.dev"},
		{"{driverName: gpu.nvidia.com, kubeletRootDir: /data/kubelet/, fake: {enabled: true}}", "/data/kubelet/plugins/gpu.nvidia.com"},
	} {
		exporter := only[*appsv1.DaemonSet](t, exporterObjects(t, release, test.values)).Spec.Template.Spec.Containers[0]
		plugin := container(t, test.values, "plugin")
		for _, see := range []struct {
			container corev1.Container
			folder    string
		}{{plugin, test.data}, {exporter, test.data + "/ownership"}} {
			if !slices.ContainsFunc(see.container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == see.folder }) {
				t.Errorf("values %q: container %s does not see %s: %+v", test.values, see.container.Name, see.folder, see.container.VolumeMounts)
			}
		}
		for _, prefix := range []string{"--driver-name=", "--kubelet-plugins-directory-path=", "--container-driver-root="} {
			if got, want := argument(exporter, prefix), argument(plugin, prefix); got != want {
				t.Errorf("values %q: the exporter has %q, the plugin %q", test.values, got, want)
			}
		}
	}
}

// argument is the argument of a container with a prefix, or nothing.
func argument(c corev1.Container, prefix string) string {
	at := slices.IndexFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, prefix) })
	if at < 0 {
		return ""
	}
	return c.Args[at]
}

// TestFlagsExist: a program ends at once when it does not know a flag.
func TestFlagsExist(t *testing.T) {
	const values = `
ownership: {httpAddress: ":8090", dcgmJobMappingDir: /run/jobs}
nvmlLibrary: /lib/libnvidia-ml.so.1
excludeDevices: [a]
exporter: {fields: "DCGM_FI_DEV_GPU_UTIL, gauge, a", webConfigSecret: web}
`
	for part, manual := range map[string]string{"kubelet-plugin": "driver.md", "exporter": "metrics.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", manual))
		if err != nil {
			t.Fatal(err)
		}
		for _, more := range []string{"", "fake: {enabled: true}\n", "{ownership: {enabled: false}, exporter: {enabled: false}}"} {
			values := values + more
			if strings.HasPrefix(more, "{") {
				values = more
			}
			for _, set := range every[*appsv1.DaemonSet](component(t, decode(t, mustRender(t, release, values)), part)) {
				for _, arg := range set.Spec.Template.Spec.Containers[0].Args {
					flag, _, _ := strings.Cut(arg, "=")
					if flag != "-v" && flag != "--logging-format" && !strings.Contains(string(text), "\n| `"+flag+"`") {
						t.Errorf("the %s gets the flag %s, which docs/%s does not have", part, flag, manual)
					}
				}
			}
		}
	}
}

// TestPrometheusShowsOwnersNotTheExporter: a series keeps the labels of who holds the
// device, and one of a device that nobody holds does not get the exporter's pod.
func TestPrometheusShowsOwnersNotTheExporter(t *testing.T) {
	keep := []relabeling{
		{Action: "labeldrop", Regex: "namespace|pod|container"},
		{SourceLabels: []string{"__meta_kubernetes_pod_node_name"}, TargetLabel: "node"},
	}
	for values, want := range map[string]scrapeEndpoint{
		"exporter: {serviceMonitor: {enabled: true}}": {Port: "metrics", Interval: "15s", HonorLabels: true, Relabelings: keep},
		"exporter: {serviceMonitor: {enabled: true, interval: 1m, endpoint: {scheme: https, scrapeTimeout: 5s}}}": {
			Port: "metrics", Interval: "1m", ScrapeTimeout: "5s", Scheme: "https", HonorLabels: true, Relabelings: keep,
		},
		"exporter: {serviceMonitor: {enabled: true, endpoint: {honorLabels: false, relabelings: []}}}": {
			Port: "metrics", Interval: "15s", HonorLabels: false, Relabelings: []relabeling{},
		},
	} {
		got := only[*serviceMonitor](t, exporterObjects(t, release, values)).Spec.Endpoints
		if diff := cmp.Diff([]scrapeEndpoint{want}, got); diff != "" {
			t.Errorf("values %q (-want +got):\n%s", values, diff)
		}
	}
}

// TestExporterWithTLSIsProbed: a kubelet has no password, and no certificate.
func TestExporterWithTLSIsProbed(t *testing.T) {
	for values, http := range map[string]bool{"": true, "exporter: {webConfigSecret: exporter-web}": false} {
		c := only[*appsv1.DaemonSet](t, exporterObjects(t, release, values)).Spec.Template.Spec.Containers[0]
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe} {
			if probe == nil || (probe.HTTPGet != nil) != http || (probe.TCPSocket != nil) == http {
				t.Errorf("values %q: probe %+v", values, probe)
			}
		}
		if file := argument(c, "--web.config.file="); (file == "") != http {
			t.Errorf("values %q: argument %q", values, file)
		}
	}
}

// TestFieldsReplaceThePods: the exporter reads its fields when it starts.
func TestFieldsReplaceThePods(t *testing.T) {
	const one = "exporter: {fields: \"DCGM_FI_DEV_GPU_UTIL, gauge, a\\nDCGM_FI_DEV_FB_USED, gauge, b\\n\"}"
	const other = "exporter: {fields: \"DCGM_FI_DEV_GPU_UTIL, gauge, a\\n\"}"
	var templates []corev1.PodTemplateSpec
	for _, values := range []string{one, other} {
		templates = append(templates, only[*appsv1.DaemonSet](t, exporterObjects(t, release, values)).Spec.Template)
	}
	if cmp.Equal(templates[0], templates[1]) {
		t.Error("the pods with other fields are the same")
	}
	data := only[*corev1.ConfigMap](t, exporterObjects(t, release, one)).Data
	if diff := cmp.Diff(map[string]string{"fields.csv": "DCGM_FI_DEV_GPU_UTIL, gauge, a\nDCGM_FI_DEV_FB_USED, gauge, b\n"}, data); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOwnershipIsAskedOnlyWhenOn: what the plugin may read beside what it needs to
// prepare claims, and where it answers.
func TestOwnershipIsAskedOnlyWhenOn(t *testing.T) {
	const off = "{ownership: {enabled: false}, exporter: {enabled: false}}"
	for values, want := range map[string]struct {
		pods, args []string
	}{
		"": {[]string{"list", "watch"}, nil},
		"{ownership: {httpAddress: ':8090', dcgmJobMappingDir: /run/jobs}}": {
			[]string{"list", "watch"}, []string{"--ownership-http-address=:8090", "--dcgm-job-mapping-dir=/run/jobs"},
		},
		off: {nil, []string{"--ownership=false"}},
	} {
		verbs := map[string][]string{}
		for _, rule := range ofPlugin[*rbacv1.ClusterRole](t, values).Rules {
			verbs[rule.Resources[0]] = rule.Verbs
		}
		if diff := cmp.Diff([][]string{{"get"}, want.pods}, [][]string{verbs["resourceclaims"], verbs["pods"]}); diff != "" {
			t.Errorf("values %q, verbs for claims and pods (-want +got):\n%s", values, diff)
		}
		plugin := container(t, values, "plugin")
		var args []string
		for _, prefix := range []string{"--ownership=", "--ownership-http-address=", "--dcgm-job-mapping-dir="} {
			if arg := argument(plugin, prefix); arg != "" {
				args = append(args, arg)
			}
		}
		if diff := cmp.Diff(want.args, args); diff != "" {
			t.Errorf("values %q, arguments (-want +got):\n%s", values, diff)
		}
		// Each folder that is named is mounted, at the same path as on the host.
		for _, arg := range args {
			_, folder, _ := strings.Cut(arg, "=")
			if !strings.HasPrefix(folder, "/") {
				continue
			}
			spec := ofPlugin[*appsv1.DaemonSet](t, values).Spec.Template.Spec
			if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.HostPath.Path == folder }) ||
				!slices.ContainsFunc(plugin.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == folder }) {
				t.Errorf("values %q: %s is not mounted", values, folder)
			}
		}
	}
}
