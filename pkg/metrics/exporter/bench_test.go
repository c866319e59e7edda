package exporter

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

// fullNode is an exporter of a node with 8 GPUs, 26 fields, and as many shares of each
// GPU as owners says, each with all that can be measured of it.
func fullNode(owners int) (*Exporter, gpumetrics.Sample) {
	var fields []gpumetrics.Field
	for i := range 26 {
		fields = append(fields, gpumetrics.Field{Name: fmt.Sprintf("DCGM_FI_DEV_FIELD_%d", i), Help: "A field.", Type: gpumetrics.Gauge})
	}
	sample := gpumetrics.Sample{Time: time.Now()}
	var held []ownership.Owner
	containers := map[int]string{}
	for n := range 8 {
		d := gpu(n)
		d.SMUtil, d.EnergyMillijoules = ptr.To(0.5), ptr.To(uint64(123456789))
		for i := range fields {
			d.Values = append(d.Values, number(float64(n*100+i)+0.25))
		}
		for i := range owners {
			name := fmt.Sprintf("training-%d-%d-7d9f8b6c5d-x2x4z", n, i)
			o := share(n, name, 1/float64(owners), name)
			o.MemoryLimitBytes = ptr.To(int64(5 << 30))
			o.Consumers[0].Workload = &ownership.Workload{APIVersion: "apps/v1", Kind: "Deployment", Name: "training"}
			held = append(held, o)
			pid := 1000*n + i
			containers[pid] = name
			d.Processes = append(d.Processes, gpumetrics.Process{PID: pid, UsedBytes: 4<<30 + uint64(i), SMUtil: ptr.To(0.5 / float64(owners))})
		}
		sample.Devices = append(sample.Devices, d)
	}
	e := New(Options{Fields: fields, Hostname: "node-a", MaxSampleAge: time.Hour, ContainerOf: func(pid int) (string, bool) {
		id, ok := containers[pid]
		return id, ok
	}})
	ownership.Sort(held)
	e.SetOwners(ownership.Snapshot{Instance: "i", Generation: 1, Time: sample.Time, Verified: sample.Time, Owners: held}, sample.Time)
	e.Update(sample)
	sample.Time = sample.Time.Add(time.Millisecond)
	e.Update(sample)
	return e, sample
}

// sink is a response that is thrown away.
type sink struct {
	header http.Header
	bytes.Buffer
}

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(int)     {}

// accepts are what Prometheus asks for: since version 3, and before.
var accepts = map[string]string{
	"prometheus-3": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
	"prometheus-2": "application/openmetrics-text;version=1.0.0;q=0.75,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1",
}

func scrape(accept, encoding string) *http.Request {
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", accept)
	if encoding != "" {
		request.Header.Set("Accept-Encoding", encoding)
	}
	return request
}

// BenchmarkScrape is a scrape of 8 GPUs x 26 fields with 16 owners of each GPU.
func BenchmarkScrape(b *testing.B) {
	e, _ := fullNode(16)
	handler := handlerOf(b, e)
	for name, accept := range accepts {
		for _, encoding := range []string{"", "gzip"} {
			b.Run(name+"/"+encoding, func(b *testing.B) {
				request := scrape(accept, encoding)
				w := &sink{header: http.Header{}}
				handler.ServeHTTP(w, request)
				b.SetBytes(int64(w.Len()))
				b.ReportAllocs()
				before := cpuTime(b)
				for b.Loop() {
					w.Reset()
					handler.ServeHTTP(w, request)
				}
				b.ReportMetric((cpuTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// cpuTime is what the process has used, which does not depend on what else the machine
// does.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkUpdate is a sample of the same node whose owners have not changed.
func BenchmarkUpdate(b *testing.B) {
	e, sample := fullNode(16)
	b.ReportAllocs()
	for b.Loop() {
		sample.Time = sample.Time.Add(time.Millisecond)
		e.Update(sample)
	}
}

// BenchmarkChange is a change of one owner and the sample after it.
func BenchmarkChange(b *testing.B) {
	e, sample := fullNode(16)
	owners := e.holdings.owners
	b.ReportAllocs()
	for generation := uint64(2); b.Loop(); generation++ {
		changed := append([]ownership.Owner(nil), owners...)
		changed[5].Claim.Name = fmt.Sprint("claim-", generation%2)
		sample.Time = sample.Time.Add(time.Millisecond)
		e.SetOwners(ownership.Snapshot{Instance: "i", Generation: generation, Time: sample.Time, Owners: changed}, sample.Time)
		e.Update(sample)
	}
}
