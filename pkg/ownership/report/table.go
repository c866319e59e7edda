package report

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"

	"apportion.dev/apportion/internal/display"
	"apportion.dev/apportion/pkg/gpu/devicemodel"
	"apportion.dev/apportion/pkg/ownership"
)

// List is what JSON and YAML have.
type List struct {
	// Problem says why owners may be stale or lack something, empty if they do not.
	Problem string            `json:"problem,omitempty"`
	Owners  []ownership.Owner `json:"owners"`
}

// render writes what is asked for. Ages are left out for no time, and the table
// gets as wide as it likes for no width.
func (o *Options) render(out io.Writer, v View, now time.Time, width int) error {
	owners := o.selected(v)
	if o.By != "" {
		u := sumUp(v, owners, o.By)
		if o.forPeople() {
			return display.PrintTable(out, u.rows())
		}
		u.Problem = o.problem(v)
		return display.PrintHarmless(out, o.Output, u)
	}
	switch {
	case !o.forPeople():
		return display.PrintHarmless(out, o.Output, List{Problem: o.problem(v), Owners: append([]ownership.Owner{}, owners...)})
	case len(owners) == 0:
		return nil
	}
	holds := newHolds(v, owners, now)
	if o.Output == Wide {
		return display.PrintTable(out, wideRows(holds))
	}
	var table strings.Builder
	if err := display.PrintTable(&table, rows(holds)); err != nil {
		return err
	}
	text := table.String()
	if width > 0 && widest(text) > width {
		text = stacked(holds, width)
	}
	_, err := io.WriteString(out, text)
	return err
}

// problem says why what is shown may be stale or lack something, empty if it does not.
func (o *Options) problem(v View) string {
	problems := []string{v.problem}
	if o.By != "" {
		problems = append(problems, uncounted(o.selected(v)))
	}
	return strings.Join(slices.DeleteFunc(problems, func(p string) bool { return p == "" }), "; ")
}

func widest(text string) int {
	most := 0
	for line := range strings.Lines(text) {
		most = max(most, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return most
}

// hold is an owner in words.
type hold struct {
	owner                              *ownership.Owner
	node, gpu, part, memory, gpus, age string
}

func newHolds(v View, owners []ownership.Owner, now time.Time) []hold {
	// On a device of unknown memory, a claim has a share if another has one.
	claims := map[poolAndText]int{}
	for _, owner := range v.owners {
		if !owner.AdminAccess {
			claims[poolAndText{owner.Device.Pool, owner.Device.Name}]++
		}
	}
	holds := make([]hold, len(owners))
	for i := range owners {
		owner := &owners[i]
		d := owner.Device
		shared := claims[poolAndText{d.Pool, d.Name}] > 1
		h := hold{
			owner: owner, node: display.Visible(v.hardware.nodeOf(d.Pool)), gpu: display.Visible(v.hardware.gpuOf(d).name),
			part: display.Visible(partOf(v, owner, shared)), memory: "-", gpus: "-", age: age(owner.Since, now),
		}
		whole, known := v.hardware.memoryOf(d)
		if consumed, ok := consumedMemory(owner); ok && !owner.AdminAccess {
			h.memory = consumed.String()
		} else if known && !owner.AdminAccess {
			h.memory = whole.String()
		}
		if d.Fraction > 0 {
			h.gpus = parts(d.Fraction)
		}
		holds[i] = h
	}
	return holds
}

// consumedMemory is what a share takes of the memory.
func consumedMemory(owner *ownership.Owner) (resource.Quantity, bool) {
	for _, name := range []string{devicemodel.CapacityMemory, owner.Device.Driver + "/" + devicemodel.CapacityMemory} {
		if text, ok := owner.Consumed[name]; ok {
			quantity, err := resource.ParseQuantity(text)
			return quantity, err == nil
		}
	}
	return resource.Quantity{}, false
}

// partOf says what of a GPU is held: "whole", "share", a partition as "1g.10gb@4" by
// its profile and where it starts, or "1g.10gb@4 share"; "admin" is for claims that only
// look on. shared says whether the device has several claims.
func partOf(v View, owner *ownership.Owner, shared bool) string {
	d := owner.Device
	share, known := isShare(v, owner, shared)
	var words []string
	switch {
	case d.Type == devicemodel.TypeMIG || d.Profile != "":
		partition := display.OrDash(d.Profile)
		if name, err := devicemodel.Parse(d.Name); err == nil && name.IsPartition() {
			partition = name.Profile + "@" + strconv.Itoa(name.Start)
		}
		words = append(words, partition)
	case owner.AdminAccess:
	case !known:
		words = append(words, "-")
	case !share:
		words = append(words, "whole")
	}
	if share {
		words = append(words, "share")
	}
	if owner.AdminAccess {
		words = append(words, "admin")
	}
	return strings.Join(words, " ")
}

// isShare says whether the claim has less than the whole device. A device that can be
// shared may also be held as a whole; known is false where it cannot be told which.
func isShare(v View, owner *ownership.Owner, shared bool) (share, known bool) {
	switch {
	case owner.Device.ShareID == "" || owner.AdminAccess || owner.Device.Fraction == 1:
		return false, true
	case shared || owner.Device.Type == devicemodel.TypeGPU && owner.Device.Fraction > 0:
		return true, true
	}
	whole, knowsWhole := v.hardware.memoryOf(owner.Device)
	consumed, consumes := consumedMemory(owner)
	return knowsWhole && consumes && consumed.Cmp(whole) < 0, knowsWhole && consumes
}

// use is a pod's use of a device in words.
type use struct{ pod, state, containers, node, uid, workload string }

// uses are those of all pods, or that there is none.
func (h hold) uses() []use {
	if len(h.owner.Consumers) == 0 {
		return []use{{"-", "-", "-", "-", "-", "-"}}
	}
	var all []use
	for _, c := range h.owner.Consumers {
		var containers []string
		for _, container := range c.Containers {
			text := container.Name
			if container.Kind != ownership.RegularContainer {
				text = string(container.Kind) + ":" + text
			}
			containers = append(containers, text)
		}
		all = append(all, use{
			pod: display.Visible(c.Name), state: display.Visible(string(c.State)), containers: display.Visible(display.OrDash(strings.Join(containers, ","))),
			node: display.Visible(display.OrDash(c.Node)), uid: display.Visible(string(c.UID)), workload: display.Visible(workloadText(c.Workload)),
		})
	}
	return all
}

func workloadText(w *ownership.Workload) string {
	if w == nil {
		return "-"
	}
	return w.Kind + "/" + w.Name
}

func rows(holds []hold) [][]string {
	table := [][]string{{"NODE", "GPU", "PART", "MEMORY", "GPUS", "NAMESPACE", "CLAIM", "POD", "STATE", "CONTAINERS", "AGE"}}
	for _, h := range holds {
		for _, u := range h.uses() {
			table = append(table, []string{
				h.node, h.gpu, h.part, h.memory, h.gpus, display.Visible(h.owner.Claim.Namespace), display.Visible(h.owner.Claim.Name),
				u.pod, u.state, u.containers, h.age,
			})
		}
	}
	return table
}

func wideRows(holds []hold) [][]string {
	table := rows(holds)
	table[0] = append(table[0], "WORKLOAD", "REQUEST", "DEVICE", "UUID", "PARENT UUID", "SHARE ID", "CLAIM UID", "POD UID")
	row := 1
	for _, h := range holds {
		d := h.owner.Device
		for _, u := range h.uses() {
			table[row] = append(table[row], u.workload, display.Visible(display.OrDash(h.owner.Request)), display.Visible(d.Name), display.Visible(display.OrDash(d.UUID)),
				display.Visible(display.OrDash(d.ParentUUID)), display.Visible(display.OrDash(string(d.ShareID))), display.Visible(string(h.owner.Claim.UID)), u.uid)
			row++
		}
	}
	return table
}
