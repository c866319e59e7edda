package main

import (
	"fmt"
	"strings"
	"time"

	"apportion.dev/apportion/bench/allocator/internal/measure"
	"apportion.dev/apportion/bench/allocator/internal/setting"
)

// row is one question with what the answer may cost.
type row struct {
	name    string
	setting func() setting.Setting
	// under is the most that a call may take.
	under time.Duration
	// kubeScheduler is how many times as long as kube-scheduler a call may take at most, 0
	// if that does not matter.
	kubeScheduler float64
	// karpenter is how many times as long Karpenter must take at least, 0 if that does not
	// matter.
	karpenter float64
	// cold rows are also measured with empty caches.
	cold bool
}

// Names of rows that are compared with each other.
const (
	oneShape  = "700 types x 8 GPUs, all 8: 1 shape"
	allShapes = "700 types x 8 GPUs, all 8: 700 shapes"
)

// limits of the specification.
const (
	pathological = 5 * time.Millisecond
	manyNodes    = 50 * time.Millisecond
)

func rows() []row {
	return []row{
		{name: "1 node, 1 of 8 GPUs", setting: func() setting.Setting { return setting.OneNode(1) }, under: 20 * time.Microsecond, kubeScheduler: 1.2, cold: true},
		{name: "1 node, 8 of 8 GPUs", setting: func() setting.Setting { return setting.OneNode(8) }, under: 60 * time.Microsecond, kubeScheduler: 1.2, cold: true},
		{name: oneShape, setting: func() setting.Setting { return setting.Types(700, 1) }, under: pathological, karpenter: 50, cold: true},
		{name: "700 types x 8 GPUs, all 8: 10 shapes", setting: func() setting.Setting { return setting.Types(700, 10) }, under: pathological, karpenter: 50},
		{name: allShapes, setting: func() setting.Setting { return setting.Types(700, 700) }, cold: true},
		{name: "8 GPUs in 1 request, and no NIC", setting: func() setting.Setting { return setting.NoNIC(8, 1) }, under: pathological},
		{name: "16 GPUs in 1 request, and no NIC", setting: func() setting.Setting { return setting.NoNIC(16, 1) }, under: pathological},
		{name: "32 GPUs in 1 request, and no NIC", setting: func() setting.Setting { return setting.NoNIC(32, 1) }, under: pathological},
		{name: "32 GPUs in 32 requests, and no NIC", setting: func() setting.Setting { return setting.NoNIC(32, 32) }, under: pathological},
		{name: "11 of 10 GPUs", setting: func() setting.Setting { return setting.OneTooFew(11) }, under: pathological},
		{name: "32 of 31 GPUs", setting: func() setting.Setting { return setting.OneTooFew(32) }, under: pathological},
		{name: "10 of 20 partitions, counter short by 1", setting: func() setting.Setting { return setting.PartitionsOneShort(20) }, under: pathological},
		{name: "16 of 32 partitions, counter short by 1", setting: func() setting.Setting { return setting.PartitionsOneShort(32) }, under: pathological},
		{name: "50 types x 8 GPUs, a NIC only in the last", setting: func() setting.Setting { return setting.LastHasNIC(50) }, under: pathological},
		{name: "5,000 nodes x 8 GPUs, new node in a zone", setting: func() setting.Setting { return setting.NewNodeInZone(5000) }, under: manyNodes},
		{name: "5,000 nodes x 8 GPUs, asked all in a zone", setting: func() setting.Setting { return setting.FullNodesInZone(5000) }, under: manyNodes},
		{name: "5,000 pools x 8 GPUs of zones", setting: func() setting.Setting { return setting.PoolsInZones(5000) }, under: manyNodes},
	}
}

// target is what the row must not cost, in words.
func (r row) target() string {
	var parts []string
	if r.under > 0 {
		parts = append(parts, "< "+duration(r.under))
	}
	if r.kubeScheduler > 0 {
		parts = append(parts, fmt.Sprintf("<= %g x kube-scheduler", r.kubeScheduler))
	}
	if r.karpenter > 0 {
		parts = append(parts, fmt.Sprintf("%g x faster than Karpenter", r.karpenter))
	}
	return strings.Join(parts, ", ")
}

// missed names the targets that results miss. The first result is ours, then come those
// of kube-scheduler and Karpenter.
func (r row) missed(results []measure.Result) []string {
	var missed []string
	complain := func(format string, args ...any) {
		missed = append(missed, r.name+": "+fmt.Sprintf(format, args...))
	}
	ours := results[0]
	if ours.Over {
		complain("not decided in %s", duration(ours.Median))
	}
	if r.under > 0 && ours.Median >= r.under {
		complain("%s, and not under %s", duration(ours.Median), duration(r.under))
	}
	if ratio := measure.Ratio(ours, results[1]); r.kubeScheduler > 0 && ratio > r.kubeScheduler {
		complain("%.2f times as long as kube-scheduler, and not at most %g", ratio, r.kubeScheduler)
	}
	if ratio := measure.Ratio(results[2], ours); r.karpenter > 0 && ratio < r.karpenter {
		complain("%.1f times as fast as Karpenter, and not at least %g", ratio, r.karpenter)
	}
	return missed
}

// shapesMissed compares as many types of one shape with as many of different shapes. If
// the cost grew with types the two would be alike.
func shapesMissed(took map[string]time.Duration) []string {
	one, all := took[oneShape], took[allShapes]
	if one == 0 || all == 0 || one <= all/2 {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s, and not at most half of the %s for as many shapes", oneShape, duration(one), duration(all))}
}
