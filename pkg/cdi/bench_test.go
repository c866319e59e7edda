package cdi

import (
	"path/filepath"
	"testing"

	"apportion.dev/apportion/pkg/fakegpu"
)

func BenchmarkRenderGPUOld(b *testing.B) {
	machine, err := fakegpu.Create(filepath.Join(b.TempDir(), "machine"), fakegpu.Spec{
		Node: "node-a", DriverVersion: "580.95.05", GPUs: []string{"h100-sxm5-80gb", "h100-sxm5-80gb"},
	})
	if err != nil {
		b.Fatal(err)
	}
	w, err := New(Options{
		Vendor: vendor, Dir: filepath.Join(b.TempDir(), "cdi"), Library: machine.NVML(), DriverRoot: machine.DriverRoot(), HostDriverRoot: "/host/driver",
		HookPath: "/var/lib/kubelet/plugins/gpu.apportion.dev/nvidia-cdi-hook",
	})
	if err != nil {
		b.Fatal(err)
	}
	s, err := machine.Summary()
	if err != nil {
		b.Fatal(err)
	}
	d := []Device{{Name: DeviceName(uid, "gpu-a", nil), GPU: s.GPUs[0].UUID}}
	b.Run("warm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := w.Render(b.Context(), d); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("warm8", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(4)
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := w.Render(b.Context(), d); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.edits.answer = nil
			if _, err := w.Render(b.Context(), d); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("coldgpu", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			clear(w.edits.answer.byGPU)
			if _, err := w.Render(b.Context(), d); err != nil {
				b.Fatal(err)
			}
		}
	})
}
