package chart

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"apportion.dev/apportion/api/resource"
)

func container(t *testing.T, values, name string) corev1.Container {
	t.Helper()
	containers := ofPlugin[*appsv1.DaemonSet](t, values).Spec.Template.Spec.Containers
	at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if at < 0 {
		t.Fatalf("values %q: no container %s", values, name)
	}
	return containers[at]
}

// TestPolicyReachesThePlugin: what is offered goes to the plugin by the variables of
// its flags.
func TestPolicyReachesThePlugin(t *testing.T) {
	flags, err := os.ReadFile("../../docs/driver.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		values string
		want   map[string]string
	}{
		{"", map[string]string{}},
		{"partitions: {enabled: false}", map[string]string{"NO_PARTITIONS": "true"}},
		{"sharing: {enabled: false}", map[string]string{"NO_SHARES": "true"}},
		{"sharing: {maxShares: 4, minMemory: 2Gi, reservedMemory: 512Mi}", map[string]string{
			"SHARING_MAX_SHARES": "4", "SHARING_MIN_MEMORY": "2Gi", "SHARING_RESERVED_MEMORY": "512Mi",
		}},
		{`sharing: {products: [{product: "NVIDIA L4*", maxShares: 1000000, minMemory: 4Gi}, {product: T4, disabled: true}]}`, map[string]string{
			"SHARING_PRODUCTS": `[{"maxShares":1000000,"minMemory":"4Gi","product":"NVIDIA L4*"},{"disabled":true,"product":"T4"}]`,
		}},
		{"ignoreXIDs: [94, 95]", map[string]string{"IGNORE_XIDS": "94,95"}},
	} {
		got := map[string]string{}
		for _, variable := range container(t, test.values, "plugin").Env {
			if variable.Name == "NODE_NAME" {
				continue
			}
			got[variable.Name] = variable.Value
			flag := "`--" + strings.ToLower(strings.ReplaceAll(variable.Name, "_", "-")) + "`"
			if !strings.Contains(string(flags), "| "+flag+" |") {
				t.Errorf("%s sets the flag %s, which the plugin does not have", variable.Name, flag)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("values %q (-want +got):\n%s", test.values, diff)
		}
	}
}

// TestMPSFolderIsWhereThePluginLooks: the supervisor's folder is at its path on the
// host, and what is mounted in it reaches the host.
func TestMPSFolderIsWhereThePluginLooks(t *testing.T) {
	bidirectional := corev1.MountPropagationBidirectional
	for _, test := range []struct{ values, folder string }{
		{"", "/var/lib/kubelet/plugins/gpu.apportion.dev/mps"},
		{"{driverName: gpu.example.com, kubeletRootDir: /data/kubelet/, fake: {enabled: true}}", "/data/kubelet/plugins/gpu.example.com/mps"},
	} {
		want := corev1.VolumeMount{Name: "mps", MountPath: test.folder, MountPropagation: &bidirectional}
		spec := ofPlugin[*appsv1.DaemonSet](t, test.values).Spec.Template.Spec
		at := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == "mps" })
		if at < 0 || spec.Volumes[at].HostPath.Path != test.folder {
			t.Fatalf("values %q: the folder of MPS is not a volume: %+v", test.values, spec.Volumes)
		}
		mps := container(t, test.values, "mps")
		if diff := cmp.Diff(want, mps.VolumeMounts[0]); diff != "" {
			t.Errorf("values %q (-want +got):\n%s", test.values, diff)
		}
		plugin := container(t, test.values, "plugin")
		for _, prefix := range []string{"--driver-name=", "--kubelet-plugins-directory-path="} {
			of := func(c corev1.Container) string {
				i := slices.IndexFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, prefix) })
				if i < 0 {
					return ""
				}
				return c.Args[i]
			}
			if of(mps) == "" || of(mps) != of(plugin) {
				t.Errorf("values %q: container mps has %q, the plugin %q", test.values, of(mps), of(plugin))
			}
		}
	}
}

// TestClassConfigIsOneThatTheDriverReads: the parameters of a class are handed on as
// they are, for this driver.
func TestClassConfigIsOneThatTheDriverReads(t *testing.T) {
	const values = `
driverName: gpu.example.com
deviceClasses:
  gpu: {config: {apiVersion: resource.apportion.dev/v1alpha1, kind: GPUConfig, sharing: {mps: {activeThreadPercentage: 30}}, memory: {softLimit: 8Gi}}}
`
	classes := map[string]string{}
	for _, class := range every[*resourcev1.DeviceClass](decode(t, mustRender(t, release, values))) {
		for _, config := range class.Spec.Config {
			if config.Opaque.Driver != "gpu.example.com" {
				t.Errorf("the config of class %s is for driver %q", class.Name, config.Opaque.Driver)
			}
			read, err := resource.DecodeFor(config.Opaque.Driver, config.Opaque.Parameters.Raw)
			if err != nil {
				t.Fatalf("class %s: %v", class.Name, err)
			}
			text, err := json.Marshal(read)
			if err != nil {
				t.Fatal(err)
			}
			classes[class.Name] += string(text)
		}
	}
	want := map[string]string{
		"gpu.example.com": `{"kind":"GPUConfig","apiVersion":"resource.apportion.dev/v1alpha1","sharing":{"mps":{"activeThreadPercentage":30}},"memory":{"softLimit":"8Gi"}}`,
	}
	if diff := cmp.Diff(want, classes); diff != "" {
		t.Errorf("configs of the classes (-want +got):\n%s", diff)
	}
}
