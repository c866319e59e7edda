//go:build !race

package exporter

import (
	"net/http"
	"testing"
)

// The race detector throws away pooled buffers at random, so it is not in its tests.

// A scrape costs the same number of allocations for any number of owners, but for lists
// of pointers that grow where an old Prometheus wants names to be escaped.
func TestAScrapeCopiesNothing(t *testing.T) {
	allocations := func(owners int, accept string) float64 {
		e, _ := fullNode(owners)
		handler, request := handlerOf(t, e), scrape(accept, "")
		w := &sink{header: http.Header{}}
		return testing.AllocsPerRun(20, func() {
			w.Reset()
			handler.ServeHTTP(w, request)
		})
	}
	for name, accept := range accepts {
		none, some, many := allocations(0, accept), allocations(16, accept), allocations(64, accept)
		t.Logf("%s: %v allocations without owners, %v with 16 of each GPU, %v with 64", name, none, some, many)
		if growth := some - none; growth > 100 {
			t.Errorf("%s: %v allocations more with 16 owners of each GPU", name, growth)
		}
		if growth := many - some; growth > 50 {
			t.Errorf("%s: %v allocations more with 64 owners of each GPU", name, growth)
		}
	}
}
