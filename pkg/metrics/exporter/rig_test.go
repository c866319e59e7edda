package exporter

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// start is when tests begin. It is near enough to now for nothing to be stale.
var start = time.Now()

// at is a number of seconds after the start.
func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

// testFields are one of each type, and one that partitions have, too.
var testFields = []gpumetrics.Field{
	{Name: "DCGM_FI_DEV_GPU_TEMP", Help: "Temperature.", Type: gpumetrics.Gauge},
	{Name: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Help: "Energy.", Type: gpumetrics.Counter},
	{Name: "DCGM_FI_DRIVER_VERSION", Help: "Version.", Type: gpumetrics.Label},
	{Name: "DCGM_FI_DEV_FB_USED", Help: "Memory used.", Type: gpumetrics.Gauge, PerInstance: true},
}

func number(n float64) gpumetrics.Value  { return gpumetrics.Value{Number: n, Present: true} }
func text(words string) gpumetrics.Value { return gpumetrics.Value{Text: words, Present: true} }

var absent = gpumetrics.Value{}

// gpu is a GPU of index n with values of testFields.
func gpu(n int, values ...gpumetrics.Value) gpumetrics.Device {
	uuid := fmt.Sprintf("GPU-%d", n)
	return gpumetrics.Device{
		Kind: gpumetrics.GPU, UUID: uuid, Values: values, Processes: []gpumetrics.Process{},
		GPU: gpumetrics.GPUIdentity{Index: n, Minor: ptr.To(n), UUID: uuid, PCIBusID: fmt.Sprintf("0000:%02x:00.0", 0x1b+n), ModelName: "NVIDIA T"},
	}
}

// instance is a partition of a GPU.
func instance(of gpumetrics.Device, id int, profile string, values ...gpumetrics.Value) gpumetrics.Device {
	return gpumetrics.Device{
		Kind: gpumetrics.Instance, UUID: fmt.Sprintf("MIG-%d-%d", of.GPU.Index, id), GPU: of.GPU, GPUInstanceID: ptr.To(id),
		Profile: profile, Values: values, Processes: []gpumetrics.Process{},
	}
}

func sample(seconds float64, devices ...gpumetrics.Device) gpumetrics.Sample {
	return gpumetrics.Sample{Time: at(seconds), Devices: devices}
}

// whole is a claim's hold on a GPU, for pods of one container.
func whole(n int, claim string, pods ...string) ownership.Owner {
	return ownership.Owner{
		Device:    ownership.Device{Driver: "gpu.apportion.dev", Pool: "node-a", Name: fmt.Sprintf("gpu-%d", n), Type: "gpu", UUID: fmt.Sprintf("GPU-%d", n), Fraction: 1},
		Claim:     ownership.ClaimRef{Namespace: "team", Name: claim, UID: types.UID("uid-" + claim)},
		Request:   "gpu",
		Consumers: consumers(pods...),
	}
}

// consumers are running pods with one container, "main", whose id is the pod's name.
func consumers(pods ...string) []ownership.Consumer {
	var all []ownership.Consumer
	for _, pod := range pods {
		all = append(all, ownership.Consumer{
			Namespace: "team", Name: pod, UID: types.UID("uid-" + pod), State: ownership.Running,
			Containers: []ownership.Container{{Name: "main", Kind: ownership.RegularContainer, ID: pod}},
		})
	}
	return all
}

func share(n int, claim string, fraction float64, pods ...string) ownership.Owner {
	o := whole(n, claim, pods...)
	o.Device.ShareID, o.Device.Fraction = types.UID("share-"+claim), fraction
	return o
}

func partition(n, id int, profile, claim string, fraction float64, pods ...string) ownership.Owner {
	o := whole(n, claim, pods...)
	o.Device = ownership.Device{
		Driver: "gpu.apportion.dev", Pool: "node-a", Name: fmt.Sprintf("gpu-%d-mig-%d", n, id), Type: "mig", UUID: fmt.Sprintf("MIG-%d-%d", n, id),
		ParentUUID: fmt.Sprintf("GPU-%d", n), Profile: profile, GPUInstanceID: ptr.To(id), Fraction: fraction,
	}
	return o
}

// since sets when claims were prepared.
func since(seconds float64, owners ...ownership.Owner) []ownership.Owner {
	for i := range owners {
		owners[i].Since = at(seconds).UTC()
	}
	return owners
}

// rig is an exporter whose processes have their container's id by a table.
type rig struct {
	*Exporter
	t          *testing.T
	generation uint64
	containers map[int]string
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, containers: map[int]string{}}
	r.Exporter = New(Options{
		Fields: testFields, Hostname: "node-a", MaxSampleAge: time.Hour, OwnershipGrace: time.Second,
		ContainerOf: func(pid int) (string, bool) {
			id, ok := r.containers[pid]
			return id, ok
		},
	})
	r.started = start
	return r
}

// owners has the exporter learn of a change as soon as it has happened.
func (r *rig) owners(seconds float64, owners ...ownership.Owner) {
	r.t.Helper()
	r.generation++
	ownership.Sort(owners)
	r.SetOwners(ownership.Snapshot{Instance: "i", Generation: r.generation, Time: at(seconds), Verified: at(seconds), Owners: owners}, at(seconds))
}

// process adds a process of a container.
func (r *rig) process(d *gpumetrics.Device, pid int, container string, bytes uint64, busy *float64) {
	r.containers[pid] = container
	d.Processes = append(d.Processes, gpumetrics.Process{PID: pid, UsedBytes: bytes, SMUtil: busy})
}

// lines are the series of some metrics, sorted, as a scraper sees them.
func (r *rig) lines(names ...string) []string {
	r.t.Helper()
	return linesOf(r.t, handlerOf(r.t, r.Exporter), names...)
}

func handlerOf(t testing.TB, e *Exporter) http.Handler {
	t.Helper()
	handler, err := e.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func linesOf(t *testing.T, handler http.Handler, names ...string) []string {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if recorder.Code != http.StatusOK {
		t.Fatalf("status %d: %s", recorder.Code, recorder.Body)
	}
	var lines []string
	for line := range strings.Lines(recorder.Body.String()) {
		name, _, _ := strings.Cut(line, "{")
		if slices.Contains(names, name) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	slices.Sort(lines)
	return lines
}

// expect compares the series of some metrics.
func (r *rig) expect(names []string, want ...string) {
	r.t.Helper()
	slices.Sort(want)
	if got := r.lines(names...); !slices.Equal(got, want) {
		r.t.Errorf("series are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func sampleAt(t time.Time, devices ...gpumetrics.Device) gpumetrics.Sample {
	return gpumetrics.Sample{Time: t, Devices: devices}
}
