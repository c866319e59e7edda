package exporter

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/utils/ptr"

	"apportion.dev/apportion/pkg/metrics/gpumetrics"
	"apportion.dev/apportion/pkg/ownership"
)

var update = flag.Bool("update", false, "write "+manual+" anew")

const manual = "../../../docs/metrics.md"

// manualScrape is a scrape that has every metric of this package with every label.
func manualScrape(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	r := newRig(t)
	r.o.Fields = []gpumetrics.Field{{Name: "FIELD", Type: gpumetrics.Gauge, PerInstance: true}}
	shared, whole, in := share(0, "s", 0.5, "s"), whole(1, "w", "w"), partition(2, 1, "1g.10gb", "p", 0.125, "p")
	shared.MemoryLimitBytes = ptr.To(int64(1))
	in.MemoryLimitBytes = ptr.To(int64(1))
	in.Device.ShareID = "share"
	admin := share(1, "admin", 0, "a")
	admin.AdminAccess = true
	owners := []ownership.Owner{shared, whole, in, admin}
	for i := range owners {
		owners[i].Consumers[0].Workload = &ownership.Workload{Kind: "Deployment", Name: "d"}
	}
	r.owners(0, owners...)
	for i := range 2 {
		a, b, c := drawn(0, float64(i)), drawn(1, float64(i)), drawn(2, float64(i))
		p := instance(c, 1, "1g.10gb", number(1))
		a.Values, b.Values = []gpumetrics.Value{number(1)}, []gpumetrics.Value{number(1)}
		r.process(&a, 1, "s", 1, ptr.To(0.5))
		r.process(&p, 2, "p", 1, ptr.To(0.5))
		r.Update(sample(float64(i), a, b, c, p))
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// labelsOf are the names of a metric's labels, in the manual's order.
func labelsOf(family *dto.MetricFamily) []string {
	order := []string{
		labelHostname, labelGPU, labelUUID, labelPCIBusID, labelModelName, labelInstanceProfile, labelInstanceID,
		labelDevice, labelDeviceUUID, labelShareID, labelClaim, labelClaimUID, labelRequest, labelAdminAccess,
		labelNamespace, labelPod, labelPodUID, labelContainer, labelWorkloadKind, labelWorkload,
	}
	var names []string
	for _, m := range family.Metric {
		for _, l := range m.Label {
			if !slices.Contains(names, l.GetName()) {
				names = append(names, l.GetName())
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return names
}

func typeOf(kind dto.MetricType) string { return strings.ToLower(kind.String()) }

func quoted(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// own lists this package's metrics: those about devices and owners, or its own state.
func own(t *testing.T, families []*dto.MetricFamily, state bool) string {
	var rows strings.Builder
	rows.WriteString("| metric | type | is | labels |\n|---|---|---|---|\n")
	for _, m := range []metric{
		shareMemoryUsed, shareMemoryLimit, shareSMUtil, ownerInfo, allocatedTime, unallocatedTime, energy,
		ownershipAge, ownershipErrors, ownershipGeneration, sampleAge,
	} {
		i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == m.name })
		if i < 0 {
			t.Errorf("no scrape has %s", m.name)
			continue
		}
		names := labelsOf(families[i])
		if (len(names) == 0) == state {
			fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", m.name, typeOf(m.kind), m.help, quoted(names))
		}
	}
	return rows.String()
}

func fieldsTable() string {
	var rows strings.Builder
	rows.WriteString("| metric | type | is | of partitions | by default |\n|---|---|---|---|---|\n")
	yes := map[bool]string{true: "yes"}
	for _, f := range gpumetrics.Fields() {
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Type, f.Help, yes[f.PerInstance], yes[slices.Contains(gpumetrics.Default(), f.Name)])
	}
	return rows.String()
}

// TestManual compares the manual with what the code publishes, and writes it anew with
// -update.
func TestManual(t *testing.T) {
	families := manualScrape(t)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "apportion_") && f.GetName() != "FIELD" {
			t.Errorf("the manual does not have %s", f.GetName())
		}
	}
	page, err := template.New("metrics.md.tmpl").Funcs(template.FuncMap{
		"fields": fieldsTable,
		"owners": func() string { return own(t, families, false) },
		"state":  func() string { return own(t, families, true) },
		"labels": func() string {
			i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "FIELD" })
			return quoted(labelsOf(families[i]))
		},
	}).ParseFiles("testdata/metrics.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := page.Execute(&want, nil); err != nil {
		t.Fatal(err)
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(manual, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("%s is not what the code says; run: go test ./pkg/metrics/exporter -run TestManual -update", manual)
	}
}
