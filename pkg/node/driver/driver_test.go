package driver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	drahealthpb "k8s.io/kubelet/pkg/apis/dra-health/v1"
	"k8s.io/utils/ptr"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"apportion.dev/apportion/pkg/gpu/inventory"
)

func TestAClaimFromSocketToSpecAndBack(t *testing.T) {
	r := newRig(t, "a100-sxm4-40gb", "a100-sxm4-40gb")
	gpu := r.published(2)[0]
	claim := r.claim("c1", gpu.Name)
	got := r.prepare(claim)["c1"]
	if got == nil || got.Error != "" || len(got.Devices) != 1 {
		t.Fatalf("prepare gave %+v", got)
	}
	d := got.Devices[0]
	if d.PoolName != "node-a" || d.DeviceName != gpu.Name || d.GetShareId() != "share-c1" || !slices.Equal(d.RequestNames, []string{"gpu"}) {
		t.Errorf("device is %+v", d)
	}
	// The first CDI device is the device's own; the second its metadata.
	want := []string{"gpu.apportion.dev/claim=c1-" + gpu.Name + "-share-c1", "gpu.apportion.dev/metadata=c1_gpu"}
	if !slices.Equal(d.CdiDeviceIds, want) {
		t.Errorf("CDI devices are %v, want %v", d.CdiDeviceIds, want)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(r.config.CDIRoot), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range d.CdiDeviceIds {
		if cache.GetDevice(id) == nil {
			t.Errorf("a container runtime does not find %s", id)
		}
	}
	r.wantStatus("c1", gpu)
	if e := r.unprepare(claim)["c1"].Error; e != "" {
		t.Fatal(e)
	}
	if left := r.specs(); len(left) != 0 {
		t.Errorf("left in the CDI folder: %v", left)
	}
}

// wantStatus waits until the claim's status has the GPU.
func (r *rig) wantStatus(uid string, gpu resourceapi.Device) {
	r.t.Helper()
	r.eventually("the claim's status is written", func() bool {
		c, err := r.client.ResourceV1().ResourceClaims("team").Get(r.t.Context(), "claim-"+uid, metav1.GetOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		return len(c.Status.Devices) == 1 && c.Status.Devices[0].Device == gpu.Name && *c.Status.Devices[0].ShareID == "share-"+uid &&
			strings.Contains(string(c.Status.Devices[0].Data.Raw), *gpu.Attributes["uuid"].StringValue)
	})
}

func TestStatusThatAKilledDriverDidNotWriteIsWrittenAtTheNextStart(t *testing.T) {
	r := newRig(t, "a100-sxm4-40gb")
	gpu := r.published(1)[0]
	r.prepare(r.claim("c1", gpu.Name))
	r.wantStatus("c1", gpu)
	r.stop()
	claims := r.client.ResourceV1().ResourceClaims("team")
	c, err := claims.Get(t.Context(), "claim-c1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := c.Status.Devices[0].Conditions[0]
	c.Status.Devices = nil
	if _, err := claims.UpdateStatus(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.wantStatus("c1", gpu)
	if c, err = claims.Get(t.Context(), "claim-c1", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if after := c.Status.Devices[0].Conditions[0]; !after.LastTransitionTime.Equal(&before.LastTransitionTime) {
		t.Errorf("ready since %v, was since %v", after.LastTransitionTime, before.LastTransitionTime)
	}
}

// hasEvent says whether there is an event about the object that has the text.
func (r *rig) hasEvent(reason, object, text string) bool {
	events, err := r.client.CoreV1().Events("").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
		return e.Reason == reason && e.InvolvedObject.Name == object && strings.Contains(e.Message, text)
	})
}

func TestAnEventSaysThatAShareIsNotLimited(t *testing.T) {
	r := newRig(t, "a100-sxm4-40gb", "a100-sxm4-40gb")
	gpus := r.published(2)
	r.prepare(r.claim("whole", gpus[0].Name), r.claimOf("part", gpus[1].Name, "10Gi"))
	r.eventually("an Event about the share", func() bool {
		return r.hasEvent("MemoryNotEnforced", "claim-part", "share of 10Gi of device "+gpus[1].Name)
	})
	if r.hasEvent("MemoryNotEnforced", "claim-whole", "") {
		t.Error("there is an Event about a whole GPU")
	}
}

func TestTheHookProgramIsInstalledAndReplaced(t *testing.T) {
	dir := t.TempDir()
	c := Config{DriverName: "gpu.apportion.dev", PluginsDir: dir, HookPath: filepath.Join(dir, "hook-in-the-image")}
	if err := os.Mkdir(c.Dir(), 0o750); err != nil {
		t.Fatal(err)
	}
	d := New(c, Providers{})
	if err := d.installHooks(); err == nil || !strings.Contains(err.Error(), "--cdi-hook-path") {
		t.Errorf("without a hook in the image the error is %v", err)
	}
	for _, content := range []string{"one", "two", "two"} {
		if err := os.WriteFile(c.HookPath, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.installHooks(); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(c.HookOnHost())
		if err != nil || string(got) != content {
			t.Errorf("installed is %q, %v; want %q", got, err, content)
		}
		if info, err := os.Stat(c.HookOnHost()); err != nil || info.Mode().Perm()&0o111 == 0 {
			t.Errorf("the hook is no program: %v, %v", info.Mode(), err)
		}
	}
}

func TestEveryClaimOfABatchHasItsOwnResult(t *testing.T) {
	r := newRig(t, "a100-sxm4-40gb", "a100-sxm4-40gb")
	gpus := r.published(2)
	good, bad, other := r.claim("good", gpus[0].Name), r.claim("bad", "gpu-00000000"), r.claim("other", gpus[1].Name)
	got := r.prepare(good, bad, other)
	if len(got) != 3 || got["good"].Error != "" || got["other"].Error != "" {
		t.Fatalf("results are %+v", got)
	}
	for _, part := range []string{"team/claim-bad", "gpu-00000000", "Delete the pod"} {
		if !strings.Contains(got["bad"].Error, part) {
			t.Errorf("error is %q, want one with %q", got["bad"].Error, part)
		}
	}
}

func TestARestartOfTheDriverChangesNothing(t *testing.T) {
	r := newRig(t, "a100-sxm4-40gb", "a100-sxm4-40gb")
	gpu := r.published(2)[0]
	claim := r.claim("c1", gpu.Name)
	before := r.prepare(claim)["c1"]
	specs := r.specs()
	r.stop()
	if now := r.specs(); !slices.Equal(now, specs) {
		t.Errorf("a stopped driver left %v of %v", now, specs)
	}
	r.client.ClearActions()
	r.start()
	after := r.prepare(claim)["c1"]
	if before.String() != after.String() {
		t.Errorf("prepared again: %v, was %v", after, before)
	}
	second := r.prepare(r.claim("c2", gpu.Name))["c2"]
	if !strings.Contains(second.Error, "team/claim-c1") {
		t.Errorf("the same GPU for another claim gave %q", second.Error)
	}
	r.published(2)
	if writes := r.sliceWrites(); writes != 0 {
		t.Errorf("slices were written %d times", writes)
	}
}

func TestGPUsThatComeAndGoArePublishedWithoutARestart(t *testing.T) {
	r := newRig(t)
	r.eventually("an empty pool is published", func() bool {
		list, err := r.client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 1
	})
	uuid, err := r.machine.AddGPU("l4", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.published(1)[0]; *got.Attributes["uuid"].StringValue != uuid || *got.Attributes["productName"].StringValue != "NVIDIA L4" {
		t.Errorf("device is %+v", got)
	}
	if err := r.machine.RemoveGPU(uuid); err != nil {
		t.Fatal(err)
	}
	r.published(0)
}

func TestADriverUpgradeReachesPreparedClaimsAndTheirStatus(t *testing.T) {
	r := newRig(t, "a100-sxm4-40gb")
	gpu := r.published(1)[0]
	r.prepare(r.claim("c1", gpu.Name))
	r.wantStatus("c1", gpu)
	if err := r.machine.SetDriverVersion("590.44.01"); err != nil {
		t.Fatal(err)
	}
	r.eventually("the claim's status has the new version", func() bool {
		c, err := r.client.ResourceV1().ResourceClaims("team").Get(t.Context(), "claim-c1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(c.Status.Devices[0].Data.Raw), `"driverVersion":"590.44.1"`)
	})
	spec, err := os.ReadFile(filepath.Join(r.config.CDIRoot, "gpu.apportion.dev-claim_c1.json"))
	if err != nil || !strings.Contains(string(spec), "libcuda.so.590.44.01") || strings.Contains(string(spec), "580.95.05") {
		t.Errorf("the spec has not the new driver's files: %v", err)
	}
}

func TestHealthSaysInWordsWhatIsWrong(t *testing.T) {
	r := newRig(t, "a100-sxm4-40gb", "a100-sxm4-40gb")
	gpus := r.published(2)
	stream, err := drahealthpb.NewDRAResourceHealthClient(r.conn).NodeWatchResources(t.Context(), &drahealthpb.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || len(first.Devices) != 2 {
		t.Fatalf("first report: %v, %v; want both GPUs", first, err)
	}
	for _, d := range first.Devices {
		if d.Health != drahealthpb.HealthStatus_HEALTHY || d.HealthCheckTimeoutSeconds != 30 {
			t.Errorf("first report has %v", d)
		}
	}
	if err := r.machine.LoseGPU(*gpus[1].Attributes["uuid"].StringValue); err != nil {
		t.Fatal(err)
	}
	for {
		report, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range report.Devices {
			// Its error is told at once, the loss when the GPU is read.
			if d.Health == drahealthpb.HealthStatus_UNHEALTHY && (d.Device.DeviceName != gpus[1].Name || strings.Contains(d.Message, "lost")) {
				if d.Device.DeviceName != gpus[1].Name {
					t.Errorf("unhealthy is %v", d)
				}
				lost := r.prepare(r.claim("c1", gpus[1].Name))["c1"]
				if !strings.Contains(lost.Error, "lost") {
					t.Errorf("a claim for the lost GPU gave %q", lost.Error)
				}
				return
			}
		}
	}
}

// hungSource is a source whose last read was at a certain time.
type hungSource struct {
	inventory.Source
	until time.Time
}

func (s hungSource) Current() bool { return time.Now().Before(s.until) }

func TestHealthBecomesUnknownWhileReadingTheHardwareHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{NodeName: "node-a"}, Providers{Source: hungSource{until: time.Now().Add(25 * time.Second)}})
		ctx, cancel := context.WithCancel(t.Context())
		reports, ended := make(chan kubeletplugin.DeviceHealthReport), make(chan error, 1)
		go func() { ended <- d.WatchHealthStatus(ctx, reports) }()
		sent := 0
		for deadline := time.After(2 * time.Minute); ; {
			select {
			case <-reports:
				sent++
				continue
			case <-deadline:
			}
			break
		}
		cancel()
		if err := <-ended; err != nil || sent != 3 { // After 0, 10 and 20 seconds.
			t.Errorf("%d reports, %v; want 3", sent, err)
		}
	})
}

func TestLivenessCallsBothSockets(t *testing.T) {
	r := newRig(t, "l4")
	r.published(1)
	server := httptest.NewServer(httpHandler(r.config, r.metrics))
	defer server.Close()
	get := func(path string) (int, string) {
		response, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body := make([]byte, 1<<20)
		n := 0
		for n < len(body) {
			k, err := response.Body.Read(body[n:])
			n += k
			if err != nil {
				break
			}
		}
		return response.StatusCode, string(body[:n])
	}
	if code, body := get("/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d %s", code, body)
	}
	_, metrics := get("/metrics")
	for _, want := range []string{`apportion_devices{state="healthy",type="gpu"} 1`, `apportion_devices{state="unhealthy",type="gpu"} 0`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics have no %s", want)
		}
	}
	r.stop()
	if code, body := get("/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "socket") {
		t.Errorf("healthz of a stopped driver: %d %s", code, body)
	}
}

func TestCallsUnderWayFinishBeforeTheDriverEnds(t *testing.T) {
	var g callGate
	leave, err := g.enter()
	if err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() { g.drain(); close(drained) }()
	for {
		again, err := g.enter()
		if errors.Is(err, errStopping) {
			break
		}
		again()
	}
	select {
	case <-drained:
		t.Fatal("drained with a call under way")
	default:
	}
	leave()
	<-drained
}

func TestADriverThatCannotPublishYetFollowsTheHardwareAndEndsWhenTold(t *testing.T) {
	r := newRig(t, "l4")
	uuid := *r.published(1)[0].Attributes["uuid"].StringValue
	r.stop()
	r.client.PrependReactor("list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the API server is away")
	})
	r.client.ClearActions()
	r.start()
	// The API server is asked for slices only by what publishes them.
	r.eventually("the driver begins to publish", func() bool {
		return slices.ContainsFunc(r.client.Actions(), func(a clienttesting.Action) bool {
			return a.Matches("list", "resourceslices")
		})
	})
	if err := r.machine.LoseGPU(uuid); err != nil {
		t.Fatal(err)
	}
	stream, err := drahealthpb.NewDRAResourceHealthClient(r.conn).NodeWatchResources(t.Context(), &drahealthpb.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	for unhealthy := false; !unhealthy; {
		report, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		unhealthy = len(report.Devices) == 1 && report.Devices[0].Health == drahealthpb.HealthStatus_UNHEALTHY
	}
	r.stop()
}

func TestDroppedFieldsNameTheFeatureGate(t *testing.T) {
	r := newRig(t, "a100-sxm4-40gb")
	r.published(1)
	desired := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{Name: "gpu-1", AllowMultipleAllocations: ptr.To(true)}}}}
	actual := desired.DeepCopy()
	actual.Spec.Devices[0].AllowMultipleAllocations = nil
	r.driver.HandleError(t.Context(), &resourceslice.DroppedFieldsError{PoolName: "node-a", DesiredSlice: desired, ActualSlice: actual}, "publish")
	r.eventually("an Event names the gate", func() bool { return r.hasEvent("FieldsDropped", "node-a", "DRAConsumableCapacity") })
}

func TestBadSettingsNameTheFlagAndTheWayOut(t *testing.T) {
	good := Config{NodeName: "n", DriverName: "gpu.apportion.dev", PluginsDir: "/var/lib/kubelet/plugins", RegistrarDir: "/var/lib/kubelet/plugins_registry"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"no node name", func(c *Config) { c.NodeName = "" }, []string{"--node-name", "NODE_NAME"}},
		{"a socket path of 108 bytes", func(c *Config) { c.PluginsDir = "/" + strings.Repeat("p", 108-len("/gpu.apportion.dev/dra.sock")-1) }, []string{"108 bytes", "at most 107", "--kubelet-plugins-directory-path"}},
		{"node name", func(c *Config) { c.NodeName = "Node A" }, []string{`--node-name "Node A"`}},
		{"driver name that is a path", func(c *Config) { c.DriverName = "../gpu" }, []string{`--driver-name "../gpu"`, "gpu.apportion.dev"}},
		{"driver name that is too long", func(c *Config) { c.DriverName = strings.Repeat("g", 64) }, []string{"--driver-name", "at most 63"}},
		{"driver name that starts with a digit", func(c *Config) { c.DriverName = "4gpu.example.com" }, []string{`--driver-name "4gpu.example.com"`}},
		{"metrics address", func(c *Config) { c.MetricsAddress = "8080" }, []string{`--metrics-address "8080"`, ":8080"}},
		{"port", func(c *Config) { c.HealthcheckPort = 70000 }, []string{"--healthcheck-port 70000"}},
		{"exclusion by index", func(c *Config) { c.Policy.Exclude = []string{"0"} }, []string{`"0"`, "UUID"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := good
			test.change(&c)
			err := c.Validate()
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error has several lines: %v", err)
			}
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error is %v, want one with %q", err, want)
				}
			}
		})
	}
}
