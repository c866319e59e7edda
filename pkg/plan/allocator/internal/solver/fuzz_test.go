package solver_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// FuzzAgainstKubeScheduler compares the solver with kube-scheduler's allocator on cases
// of which the fuzzer makes the choices. With -fuzzminimizetime 20x it does not spend its
// time on making interesting inputs smaller.
func FuzzAgainstKubeScheduler(f *testing.F) {
	f.Add([]byte(nil))
	random := rand.New(rand.NewPCG(1, 0))
	for range 50 {
		data := make([]byte, 0, 400)
		for len(data) < cap(data) {
			data = binary.LittleEndian.AppendUint64(data, random.Uint64())
		}
		f.Add(data)
	}
	p := newComparer()
	f.Fuzz(func(t *testing.T, data []byte) {
		c := Generate(Bytes(data))
		for _, node := range nodes(c) {
			if text, _ := p.difference(c, node); text != "" {
				t.Error(p.describe(c, node))
				return
			}
		}
	})
}
