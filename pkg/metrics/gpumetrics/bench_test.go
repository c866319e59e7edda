package gpumetrics

import (
	"testing"
	"time"

	"apportion.dev/apportion/pkg/fake/fakegpu"
)

// A sample of 8 GPUs with two processes each. What the fake machine takes is in it: it
// reads its state for each of the calls.
func BenchmarkRead(b *testing.B) {
	r := newRig(b, []string{
		"h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb",
		"h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb", "h100-sxm5-80gb",
	}, Default()...)
	for _, gpu := range []string{"0", "1", "2", "3", "4", "5", "6", "7"} {
		must(b, r.SetLoad(gpu, fakegpu.Load{GPUPercent: 50, Processes: []fakegpu.Process{{PID: 7, MemoryBytes: gib}, {PID: 8, MemoryBytes: gib}}}))
	}
	node := r.node()
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Second)
		if got := len(r.reader.Read(b.Context(), node, now).Devices); got != 8 {
			b.Fatalf("%d devices", got)
		}
	}
}
