package cdi

import (
	"testing"

	"tags.cncf.io/container-device-interface/specs-go"
)

// BenchmarkRender is what a claim costs on a node with H100s: one that is known,
// one after each change, and eight at a time. An operation is one Render.
func BenchmarkRender(b *testing.B) {
	f := newFixture(b, "h100-sxm5-80gb", "h100-sxm5-80gb")
	partition := f.createMIG(b, 1, "1g.10gb", 3)
	gpu := []Device{{Name: "gpu-a", GPU: f.gpus[0]}}
	mig := []Device{{Name: "gpu-a-1g.10gb-3", GPU: partition}}
	edited := []Device{{Name: "gpu-a", GPU: f.gpus[0], Edits: specs.ContainerEdits{
		Env:    []string{"CUDA_MPS_PIPE_DIRECTORY=/run/mps"},
		Mounts: []*specs.Mount{{HostPath: "/run/mps", ContainerPath: "/run/mps"}},
	}}}
	render := func(b *testing.B, devices []Device) {
		if _, err := f.Render(b.Context(), devices); err != nil {
			b.Error(err)
		}
	}
	for _, test := range []struct {
		name    string
		devices []Device
		before  func()
	}{
		{"GPU", gpu, func() {}},
		{"GPU with edits", edited, func() {}},
		{"MIG", mig, func() {}},
		{"GPU not known", gpu, func() { clear(f.edits.known.Load().gpus) }},
		{"driver not known", gpu, func() { f.edits.known.Store(nil) }},
	} {
		b.Run(test.name, func(b *testing.B) {
			render(b, test.devices)
			b.ReportAllocs()
			for b.Loop() {
				test.before()
				render(b, test.devices)
			}
		})
		if test.name == "GPU" || test.name == "MIG" {
			b.Run(test.name+" eight at a time", func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(4)
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						render(b, test.devices)
					}
				})
			})
		}
	}
	b.Run("MIG made anew", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			if err := f.machine.DestroyMIG("", partition); err != nil {
				b.Fatal(err)
			}
			f.createMIG(b, 1, "1g.10gb", 3)
			b.StartTimer()
			render(b, mig)
		}
	})
}
