package fakegpu

import "testing"

func BenchmarkUpdate(b *testing.B) {
	l, _ := ParseGPUs("h100-sxm5-80gb:8")
	m, _ := Create(b.TempDir(), Spec{Node: "n", GPUs: l})
	for b.Loop() {
		m.UpdateLoad("0", func(l *Load) error { l.GPUPercent = (l.GPUPercent + 1) % 100; return nil })
	}
}
func BenchmarkGet(b *testing.B) {
	l, _ := ParseGPUs("h100-sxm5-80gb:8")
	m, _ := Create(b.TempDir(), Spec{Node: "n", GPUs: l})
	m.NVML().Init()
	d, _ := m.NVML().DeviceGetHandleByIndex(7)
	for b.Loop() {
		d.GetUUID()
	}
}
func BenchmarkMIG(b *testing.B) {
	l, _ := ParseGPUs("h100-sxm5-80gb:8")
	m, _ := Create(b.TempDir(), Spec{Node: "n", GPUs: l})
	for b.Loop() {
		m.CreateMIG("0", "1g.10gb", 0)
		m.DestroyMIG("0", "all")
	}
}
