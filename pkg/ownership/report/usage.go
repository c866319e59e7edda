package report

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/internal/display"
	"apportion.dev/apportion/pkg/ownership"
)

// Usage is who uses how much. Numbers are of whole GPUs; those that are not known are
// nil.
type Usage struct {
	By string `json:"by"`
	// GPUs are those that there are: published ones, and others that are held.
	GPUs *int     `json:"gpus,omitempty"`
	Used float64  `json:"used"`
	Free *float64 `json:"free,omitempty"`
	// Groups are sorted by what they use, the most first; nodes by name.
	Groups  []Group `json:"groups"`
	Problem string  `json:"problem,omitempty"`

	claims, pods int
}

// Group is what one namespace, workload or node uses.
type Group struct {
	Namespace string `json:"namespace,omitempty"`
	// Workload is nil for claims that no pod uses, and of kind Pod for a pod that
	// nothing made.
	Workload *ownership.Workload `json:"workload,omitempty"`
	Node     string              `json:"node,omitempty"`
	// GPUs and Free are of a node.
	GPUs *int     `json:"gpus,omitempty"`
	Used float64  `json:"used"`
	Free *float64 `json:"free,omitempty"`
	// Share is the part of all GPUs that is used here, of a node the part of its own;
	// 0 to 1.
	Share  *float64 `json:"share,omitempty"`
	Claims int      `json:"claims"`
	Pods   int      `json:"pods"`
}

// groupKey tells groups apart; of a view by workload it has the namespace too.
type groupKey struct {
	namespace string
	workload  ownership.Workload
	node      string
}

type tally struct {
	used         float64
	gpus         int
	claims, pods map[types.UID]bool
}

// tallies add up by groups.
type tallies map[groupKey]*tally

func (t tallies) of(key groupKey) *tally {
	if t[key] == nil {
		t[key] = &tally{claims: map[types.UID]bool{}, pods: map[types.UID]bool{}}
	}
	return t[key]
}

func (t *tally) add(owner ownership.Owner, used float64, pods []ownership.Consumer) {
	t.used += used
	t.claims[owner.Claim.UID] = true
	for _, pod := range pods {
		t.pods[pod.UID] = true
	}
}

// sumUp adds up what owners use.
func sumUp(v View, owners []ownership.Owner, by string) Usage {
	groups, all := tallies{}, tallies{}.of(groupKey{})
	held := map[gpuKey]bool{}
	for _, owner := range owners {
		held[v.hardware.gpuOf(owner.Device)] = true
		all.add(owner, owner.Device.Fraction, owner.Consumers)
		switch by {
		case ByNamespace:
			groups.of(groupKey{namespace: owner.Claim.Namespace}).add(owner, owner.Device.Fraction, owner.Consumers)
		case ByNode:
			groups.of(groupKey{node: v.hardware.nodeOf(owner.Device.Pool)}).add(owner, owner.Device.Fraction, owner.Consumers)
		case ByWorkload:
			groups.addWorkloads(owner)
		}
	}
	u := Usage{By: by, Used: rounded(all.used), claims: len(all.claims), pods: len(all.pods), Groups: []Group{}}
	if v.hardware != nil {
		for _, gpu := range v.hardware.gpus {
			held[gpu] = true
		}
		u.GPUs = new(len(held))
		if !v.partial {
			u.Free = free(len(held), all.used)
		}
		if by == ByNode {
			for gpu := range held {
				groups.of(groupKey{node: v.hardware.nodeOf(gpu.pool)}).gpus++
			}
		}
	}
	for key, t := range groups {
		u.Groups = append(u.Groups, u.group(key, t, v))
	}
	slices.SortFunc(u.Groups, compareGroups)
	return u
}

// uncounted says that sums lack something, or nothing.
func uncounted(owners []ownership.Owner) string {
	unknown := map[string]bool{}
	for _, owner := range owners {
		if owner.Device.Fraction == 0 && !owner.AdminAccess {
			unknown[owner.Device.Pool+"/"+owner.Device.Name] = true
		}
	}
	if len(unknown) == 0 {
		return ""
	}
	return "Not counted, as it is not known which part of a GPU they are: " + strings.Join(slices.Sorted(maps.Keys(unknown)), ", ")
}

// addWorkloads splits what an owner holds evenly among the workloads that use it, so
// that the parts add up: nobody measures here who does how much with it.
func (t tallies) addWorkloads(owner ownership.Owner) {
	users := map[ownership.Workload][]ownership.Consumer{}
	for _, c := range owner.Consumers {
		w := ownership.Workload{APIVersion: "v1", Kind: "Pod", Name: c.Name}
		if c.Workload != nil {
			w = *c.Workload
		}
		users[w] = append(users[w], c)
	}
	if len(users) == 0 {
		users[ownership.Workload{}] = nil
	}
	for w, pods := range users {
		t.of(groupKey{namespace: owner.Claim.Namespace, workload: w}).add(owner, owner.Device.Fraction/float64(len(users)), pods)
	}
}

func (u Usage) group(key groupKey, t *tally, v View) Group {
	g := Group{Namespace: key.namespace, Node: key.node, Used: rounded(t.used), Claims: len(t.claims), Pods: len(t.pods)}
	if key.workload != (ownership.Workload{}) {
		g.Workload = &key.workload
	}
	total := u.GPUs
	if u.By == ByNode && v.hardware != nil {
		total, g.GPUs = &t.gpus, &t.gpus
		if !v.partial {
			g.Free = free(t.gpus, t.used)
		}
	}
	if total != nil && *total > 0 {
		share := rounded(t.used / float64(*total))
		g.Share = &share
	}
	return g
}

func free(gpus int, used float64) *float64 {
	left := rounded(max(0, float64(gpus)-used))
	return &left
}

func compareGroups(a, b Group) int {
	if a.Node != "" || b.Node != "" {
		return strings.Compare(a.Node, b.Node)
	}
	return cmp.Or(cmp.Compare(b.Used, a.Used), strings.Compare(a.Namespace, b.Namespace), strings.Compare(workloadText(a.Workload), workloadText(b.Workload)))
}

// shareOf is the part of all GPUs that a number of them is, nil if it is not known.
func (u Usage) shareOf(gpus *float64) *float64 {
	if u.GPUs == nil || *u.GPUs == 0 || gpus == nil {
		return nil
	}
	return new(*gpus / float64(*u.GPUs))
}

// rows are the table of what each uses, and then of all.
func (u Usage) rows() [][]string {
	count := func(claims, pods int) []string { return []string{strconv.Itoa(claims), strconv.Itoa(pods)} }
	if u.By == ByNode {
		table := [][]string{{"NODE", "GPUS", "USED", "FREE", "SHARE", "CLAIMS", "PODS"}}
		row := func(name string, gpus *int, used float64, free, share *float64) []string {
			return []string{name, orUnknown(gpus, strconv.Itoa), parts(used), orUnknown(free, parts), orUnknown(share, percent)}
		}
		for _, g := range u.Groups {
			table = append(table, append(row(display.Visible(g.Node), g.GPUs, g.Used, g.Free, g.Share), count(g.Claims, g.Pods)...))
		}
		return append(table, append(row("TOTAL", u.GPUs, u.Used, u.Free, u.shareOf(&u.Used)), count(u.claims, u.pods)...))
	}
	names := []string{"NAMESPACE"}
	if u.By == ByWorkload {
		names = append(names, "WORKLOAD")
	}
	row := func(namespace, workload string, gpus, share *float64) []string {
		return append([]string{namespace, workload}[:len(names)], orUnknown(gpus, parts), orUnknown(share, percent))
	}
	table := [][]string{append(names, "GPUS", "SHARE", "CLAIMS", "PODS")}
	for _, g := range u.Groups {
		table = append(table, append(row(display.Visible(g.Namespace), display.Visible(workloadText(g.Workload)), &g.Used, g.Share), count(g.Claims, g.Pods)...))
	}
	var total *float64
	if u.GPUs != nil {
		total = new(float64(*u.GPUs))
	}
	return append(table,
		append(row("USED", "", &u.Used, u.shareOf(&u.Used)), count(u.claims, u.pods)...),
		row("FREE", "", u.Free, u.shareOf(u.Free)),
		row("TOTAL", "", total, u.shareOf(total)))
}

// orUnknown writes a number, or that it is not known.
func orUnknown[T any](number *T, text func(T) string) string {
	if number == nil {
		return "-"
	}
	return text(*number)
}
