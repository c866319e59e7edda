package chart

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files and the chart's table of values")

const chartDir = "../../deployments/helm/apportion"

var release = Release{Name: "apportion", Namespace: "apportion-system"}

func parseValues(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func mustRender(t *testing.T, r Release, values string) []byte {
	t.Helper()
	manifests, err := Render(chartDir, r, parseValues(t, values))
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

// decode turns manifests into typed objects, as strictly as an API server with
// field validation: an unknown or a doubled field fails the test.
func decode(t *testing.T, manifests []byte) []runtime.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for reader := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(manifests))); ; {
		document := make([]byte, len(manifests))
		n, err := reader.Read(document)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(document[:n], nil, nil)
		if runtime.IsNotRegisteredError(err) {
			object, err = decodeExtension(document[:n])
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, document[:n])
		}
		objects = append(objects, object)
	}
}

// only returns the one object of a type.
func only[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	all := every[T](objects)
	if len(all) != 1 {
		t.Fatalf("%d objects of type %T, want 1", len(all), *new(T))
	}
	return all[0]
}

func every[T runtime.Object](objects []runtime.Object) []T {
	var all []T
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			all = append(all, typed)
		}
	}
	return all
}

// component keeps the objects of one part of the chart: "kubelet-plugin", "exporter" or
// "webhook".
func component(t *testing.T, objects []runtime.Object, name string) []runtime.Object {
	t.Helper()
	return slices.DeleteFunc(objects, func(object runtime.Object) bool {
		meta, err := meta.Accessor(object)
		if err != nil {
			t.Fatal(err)
		}
		return meta.GetLabels()["app.kubernetes.io/component"] != name
	})
}

// ofPlugin returns the one object of a type among those of the kubelet plugin.
func ofPlugin[T runtime.Object](t *testing.T, values string) T {
	t.Helper()
	return only[T](t, component(t, decode(t, mustRender(t, release, values)), "kubelet-plugin"))
}

// TestGolden shows a reviewer what a change of the chart changes in a cluster.
// "go test ./chart -update" rewrites the files.
func TestGolden(t *testing.T) {
	for _, test := range []struct{ name, values string }{
		{"default", ""},
		{"fake", "fake: {enabled: true, gpus: 'node-a=h100-sxm5-80gb:8;*=t4:1'}"},
		{"driver-name", "driverName: gpu.nvidia.com"},
		{"no-extended-resource", "extendedResourceName: ''"},
		{"no-mps", "mps: {enabled: false}"},
		{"cert-manager", "webhook: {certManager: {enabled: true}}"},
		{"no-webhook", "webhook: {enabled: false}"},
		{"no-ownership", "{ownership: {enabled: false}, exporter: {enabled: false}}"},
		{"all-values", `
image: {repository: registry.example.com/apportion, tag: v1.2.3, pullPolicy: Always}
imagePullSecrets: [{name: registry}]
deviceClasses:
  gpu: {config: {apiVersion: resource.apportion.dev/v1alpha1, kind: GPUConfig, memory: {enforcement: Required}}}
  mig: {config: {apiVersion: resource.apportion.dev/v1alpha1, kind: MIGConfig, memory: {enforcement: None}}}
excludeDevices: [GPU-11111111-2222-3333-4444-555555555555, "0000:3b:00.0", NVIDIA T4]
partitions: {enabled: false}
sharing:
  enabled: false
  maxShares: 8
  minMemory: 2Gi
  reservedMemory: 512Mi
  products: [{product: "NVIDIA L4*", maxShares: 4}, {product: NVIDIA T4, disabled: true}]
mps: {multiUser: false, sharedMemory: 2Gi, resources: {limits: {memory: 1Gi}}}
ignoreXIDs: [94, 95]
kubeletRootDir: /data/kubelet/
cdiRoot: /etc/cdi
nvidiaDriverRoot: /run/nvidia/driver
nvmlLibrary: /driver-root/opt/libnvidia-ml.so.1
logging: {format: json, verbosity: 6}
healthcheckPort: -1
metrics: {enabled: false}
ownership: {httpAddress: "127.0.0.1:8090", dcgmJobMappingDir: /var/run/dcgm/jobs}
serviceAccount: {create: false, name: gpu-driver}
nodeSelector: {feature.node.kubernetes.io/pci-10de.present: "true"}
affinity: {nodeAffinity: {}}
tolerations: [{operator: Exists}]
priorityClassName: ""
updateStrategy: {type: OnDelete, rollingUpdate: null}
terminationGracePeriodSeconds: 90
resources: {limits: {memory: 256Mi}}
podAnnotations: {example.com/a: b}
podLabels: {example.com/c: d}
extraEnv: [{name: POLL_INTERVAL, value: 30s}]
webhook:
  replicas: 1
  failurePolicy: Fail
  timeoutSeconds: 10
  certificateLifetime: 24h
  resources: {limits: {memory: 128Mi}}
  nodeSelector: {node-role.kubernetes.io/control-plane: ""}
  affinity: {podAffinity: {}}
  tolerations: [{operator: Exists}]
  priorityClassName: system-cluster-critical
  podAnnotations: {example.com/e: f}
  podLabels: {example.com/g: h}
exporter:
  port: 9445
  collectInterval: 500ms
  fields: |
    # The least
    DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).
    DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB).
  ownerLabels: [app.kubernetes.io/name, team]
  webConfigSecret: exporter-web
  resources: {limits: {memory: 64Mi}}
  podAnnotations: {example.com/i: j}
  podLabels: {example.com/k: l}
  extraEnv: [{name: SCRAPE_TIMEOUT, value: 1s}]
  serviceMonitor:
    enabled: true
    labels: {prometheus: main}
    interval: 5s
    endpoint: {scheme: https, scrapeTimeout: 4s, tlsConfig: {insecureSkipVerify: true}, basicAuth: {username: {name: exporter-client, key: user}}}
  prometheusRule: {enabled: true, labels: {prometheus: main}}
nameOverride: gpus
fullnameOverride: gpu-driver
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			manifests := mustRender(t, release, test.values)
			decode(t, manifests)
			golden := filepath.Join("testdata", test.name+".yaml")
			if *update {
				if err := os.WriteFile(golden, manifests, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v; run this test with -update to write it", err)
			}
			if diff := cmp.Diff(string(want), string(manifests)); diff != "" {
				t.Errorf("%s (-want +got), rewrite it with -update if this is meant:\n%s", golden, diff)
			}
		})
	}
}

func TestInstallOrder(t *testing.T) {
	var kinds []string
	for _, object := range decode(t, mustRender(t, release, "")) {
		kinds = append(kinds, object.GetObjectKind().GroupVersionKind().Kind)
	}
	want := []string{
		"PodDisruptionBudget", "ServiceAccount", "ServiceAccount", "ServiceAccount", "Secret",
		"ClusterRole", "ClusterRole", "ClusterRoleBinding", "ClusterRoleBinding", "Role", "RoleBinding",
		"Service", "Service", "DaemonSet", "DaemonSet", "Deployment", "ValidatingWebhookConfiguration",
		"DeviceClass", "DeviceClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

// TestAccountIsOne: the account that the pods run as, that the role is bound to
// and that the policy restricts are the same, whatever the names are. A policy
// for another account would restrict nobody, silently.
func TestAccountIsOne(t *testing.T) {
	for _, test := range []struct {
		name    string
		release Release
		values  string
		account string
	}{
		{"defaults", release, "", "apportion-kubelet-plugin"},
		{"another release", Release{Name: "prod", Namespace: "gpu-system"}, "", "prod-apportion-kubelet-plugin"},
		{"override", Release{Name: "a", Namespace: "b"}, "fullnameOverride: gpus", "gpus-kubelet-plugin"},
		{"long name", Release{Name: strings.Repeat("x", 53), Namespace: "b"}, "", strings.Repeat("x", 47) + "-kubelet-plugin"},
		{"named account", release, "serviceAccount: {name: gpu-driver}", "gpu-driver"},
		{"existing account", release, "serviceAccount: {create: false, name: theirs}", "theirs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := component(t, decode(t, mustRender(t, test.release, test.values)), "kubelet-plugin")
			set := only[*appsv1.DaemonSet](t, objects)
			if got := set.Spec.Template.Spec.ServiceAccountName; got != test.account || set.Namespace != test.release.Namespace {
				t.Errorf("pods run as %s/%s, want %s/%s", set.Namespace, got, test.release.Namespace, test.account)
			}
			binding := only[*rbacv1.ClusterRoleBinding](t, objects)
			subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: test.account, Namespace: test.release.Namespace}}
			if diff := cmp.Diff(subjects, binding.Subjects); diff != "" {
				t.Errorf("subjects of the role (-want +got):\n%s", diff)
			}
			policy := only[*admissionv1.ValidatingAdmissionPolicy](t, objects)
			conditions := []admissionv1.MatchCondition{{
				Name:       "is-the-kubelet-plugin",
				Expression: `request.userInfo.username == "system:serviceaccount:` + test.release.Namespace + ":" + test.account + `"`,
			}}
			if diff := cmp.Diff(conditions, policy.Spec.MatchConditions); diff != "" {
				t.Errorf("whom the policy restricts (-want +got):\n%s", diff)
			}
			if bound := only[*admissionv1.ValidatingAdmissionPolicyBinding](t, objects).Spec.PolicyName; bound != policy.Name {
				t.Errorf("the binding is of policy %q, the policy is %q", bound, policy.Name)
			}
			if binding.RoleRef.Name != only[*rbacv1.ClusterRole](t, objects).Name {
				t.Errorf("the binding is of role %q, which is not the chart's", binding.RoleRef.Name)
			}
			for _, account := range every[*corev1.ServiceAccount](objects) {
				if account.Name != test.account || account.Namespace != test.release.Namespace {
					t.Errorf("the chart makes account %s/%s", account.Namespace, account.Name)
				}
			}
		})
	}
}

func TestDriverNameIsFollowed(t *testing.T) {
	manifests := mustRender(t, release, "driverName: gpu.nvidia.com")
	objects := decode(t, manifests)
	classes := map[string]string{}
	for _, class := range every[*resourcev1.DeviceClass](objects) {
		classes[class.Name] = class.Spec.Selectors[0].CEL.Expression
	}
	want := map[string]string{
		"gpu.nvidia.com": `device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"`,
		"mig.nvidia.com": `device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "mig"`,
	}
	if diff := cmp.Diff(want, classes); diff != "" {
		t.Errorf("classes and selectors (-want +got):\n%s", diff)
	}
	if bytes.Contains(manifests, []byte("gpu.apportion.dev")) {
		t.Error("the default driver name is still in the manifests")
	}
	rules := only[*rbacv1.ClusterRole](t, component(t, objects, "kubelet-plugin")).Rules
	own := slices.IndexFunc(rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "resourceclaims/driver") })
	if own < 0 || !slices.Equal(rules[own].ResourceNames, []string{"gpu.nvidia.com"}) {
		t.Errorf("the role has no permission for the entries of gpu.nvidia.com: %+v", rules)
	}
}

// TestThePluginMayDoWhatItDoesAndNoMore has what the plugin's code calls: the slices'
// controller of k8s.io/dynamic-resource-allocation neither gets nor patches, the
// status is written by server-side apply, and events are those of the core group.
func TestThePluginMayDoWhatItDoesAndNoMore(t *testing.T) {
	got := map[string][]string{}
	for _, rule := range ofPlugin[*rbacv1.ClusterRole](t, "").Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				got[group+"/"+resource] = append(got[group+"/"+resource], rule.Verbs...)
			}
		}
	}
	want := map[string][]string{
		"resource.k8s.io/resourceclaims":        {"get"},
		"resource.k8s.io/resourceclaims/status": {"patch"},
		"resource.k8s.io/resourceclaims/driver": {"associated-node:patch"},
		"resource.k8s.io/resourceslices":        {"list", "watch", "create", "update", "delete"},
		"/pods":                                 {"list", "watch"},
		"/nodes":                                {"get"},
		"/events":                               {"create", "patch"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("permissions (-want +got):\n%s", diff)
	}
}

func TestExtendedResource(t *testing.T) {
	for _, test := range []struct {
		values string
		want   *string
	}{
		{"", new("nvidia.com/gpu")},
		{"extendedResourceName: example.com/h100", new("example.com/h100")},
		{"extendedResourceName: ''", nil},
	} {
		for _, class := range every[*resourcev1.DeviceClass](decode(t, mustRender(t, release, test.values))) {
			want := test.want
			if class.Name == "mig.apportion.dev" {
				want = nil
			}
			if diff := cmp.Diff(want, class.Spec.ExtendedResourceName); diff != "" {
				t.Errorf("values %q, extended resource of class %s (-want +got):\n%s", test.values, class.Name, diff)
			}
		}
	}
}

func TestPrivileges(t *testing.T) {
	type privileges struct {
		Privileged bool
		Added      []corev1.Capability
		HostPaths  []string
	}
	see := func(spec corev1.PodSpec, container corev1.Container) privileges {
		result := privileges{Privileged: *container.SecurityContext.Privileged}
		if c := container.SecurityContext.Capabilities; c != nil {
			if !slices.Equal(c.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("container %s drops %v, not ALL", container.Name, c.Drop)
			}
			result.Added = c.Add
		}
		for _, mount := range container.VolumeMounts {
			at := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
			result.HostPaths = append(result.HostPaths, spec.Volumes[at].HostPath.Path)
		}
		return result
	}
	const data, registry, cdi = "/var/lib/kubelet/plugins/gpu.apportion.dev", "/var/lib/kubelet/plugins_registry", "/var/run/cdi"
	const supervisor, machine = data + "/mps", "/var/lib/apportion/fake"
	plugin := privileges{Privileged: true, HostPaths: []string{data, registry, cdi, "/", "/dev"}}
	fakeMachine := privileges{Added: []corev1.Capability{"MKNOD"}, HostPaths: []string{machine}}
	fakePlugin := privileges{Privileged: true, HostPaths: []string{data, registry, cdi, machine, "/dev"}}
	for _, test := range []struct {
		values  string
		hostPID bool
		want    map[string]privileges
	}{
		{"", true, map[string]privileges{
			"plugin": plugin,
			"mps":    {Privileged: true, HostPaths: []string{supervisor, "/", "/dev"}},
		}},
		{"mps: {enabled: false}", false, map[string]privileges{"plugin": plugin}},
		{"fake: {enabled: true}", true, map[string]privileges{
			"fake-machine": fakeMachine, "plugin": fakePlugin,
			"mps": {Privileged: true, HostPaths: []string{supervisor, machine, "/dev"}},
		}},
		{"{fake: {enabled: true}, mps: {enabled: false}}", false, map[string]privileges{
			"fake-machine": fakeMachine, "plugin": fakePlugin,
		}},
	} {
		spec := ofPlugin[*appsv1.DaemonSet](t, test.values).Spec.Template.Spec
		if spec.HostNetwork || spec.HostIPC || spec.HostPID != test.hostPID {
			t.Errorf("values %q: namespaces of the host: network %t, IPC %t, PID %t; want PID %t only",
				test.values, spec.HostNetwork, spec.HostIPC, spec.HostPID, test.hostPID)
		}
		if profile := spec.SecurityContext.SeccompProfile; profile == nil || profile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("values %q: seccomp profile %+v", test.values, profile)
		}
		found := map[string]privileges{}
		for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
			if !*container.SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("values %q: container %s can write to its root", test.values, container.Name)
			}
			found[container.Name] = see(spec, container)
		}
		if diff := cmp.Diff(test.want, found); diff != "" {
			t.Errorf("values %q (-want +got):\n%s", test.values, diff)
		}
	}
}

func TestRefusedValues(t *testing.T) {
	for _, test := range []struct{ name, values, want string }{
		{"unknown", "driverNmae: x.example.com", "driverNmae"},
		{"unknown inside", "fake: {gpu: t4:1}", "'gpu' not allowed"},
		{"wrong type", "fake: {enabled: 'yes'}", "/fake/enabled"},
		{"driver name without a dot", "driverName: gpu", "/driverName"},
		{"driver name of the other class", "driverName: mig.example.com", "/driverName"},
		{"relative folder", "cdiRoot: run/cdi", "/cdiRoot"},
		{"log format", "logging: {format: xml}", "/logging/format"},
		{"port", "healthcheckPort: 0", "/healthcheckPort"},
		{"comma in a device", "excludeDevices: ['a,b']", "/excludeDevices/0"},
		{"amount of memory", "sharing: {minMemory: 2GB}", "/sharing/minMemory"},
		{"product without a name", "sharing: {products: [{maxShares: 2}]}", "/sharing/products/0"},
		{"unknown setting of a product", "sharing: {products: [{product: a, shares: 2}]}", "'shares' not allowed"},
		{"no shared memory", "mps: {sharedMemory: ''}", "/mps/sharedMemory"},
		{"class config without a kind", "deviceClasses: {gpu: {config: {memory: {}}}}", "/deviceClasses/gpu/config"},
		{"Xid as text", "ignoreXIDs: ['79']", "/ignoreXIDs/0"},
		{"no port of the owners", "ownership: {httpAddress: localhost}", "/ownership/httpAddress"},
		{"exporter without owners", "ownership: {enabled: false}", "needs ownership.enabled"},
		{"interval without a unit", "exporter: {collectInterval: '1'}", "/exporter/collectInterval"},
		{"failure policy", "webhook: {failurePolicy: ignore}", "/webhook/failurePolicy"},
		{"no replica", "webhook: {replicas: 0}", "/webhook/replicas"},
		{"lifetime without a unit", "webhook: {certificateLifetime: '90'}", "/webhook/certificateLifetime"},
		{"no account", "serviceAccount: {create: false}", "serviceAccount.name must be set"},
		{"socket path", "kubeletRootDir: /" + strings.Repeat("k", 80), "Linux allows 107: shorten driverName or kubeletRootDir"},
		{"two plugins on a node", "updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}", "set maxUnavailable instead"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Render(chartDir, release, parseValues(t, test.values))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}
