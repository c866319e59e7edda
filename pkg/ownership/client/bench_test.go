package client

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"apportion.dev/apportion/pkg/ownership"
	"apportion.dev/apportion/pkg/ownership/server"
)

// BenchmarkWatchEvent is the time from Set to the client's changed, over the socket,
// on a node where one of 64 shares changes hands. It is to stay below 5 ms.
func BenchmarkWatchEvent(b *testing.B) {
	socket := socketPath(b)
	s := server.New()
	serve(b, s, socket)
	states := [2][]ownership.Owner{}
	for i := range 64 {
		device, claim := fmt.Sprintf("gpu-%02d", i), fmt.Sprint("claim-", i)
		states[0] = append(states[0], owner(device, claim, "pod"))
		states[1] = append(states[1], owner(device, claim, "pod"))
	}
	states[1][17] = owner("gpu-17", "claim-17", "other")
	s.Set(states[1], "", noon)
	r := run(b, New(socket))
	<-r.changes
	b.ReportAllocs()
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		s.Set(states[i%2], "", noon)
		<-r.changes
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
}
