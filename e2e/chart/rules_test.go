package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// readRules are the rules as a Prometheus without the operator reads them.
func readRules(t *testing.T) ruleFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "rules", "apportion.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules ruleFile
	if err := yaml.UnmarshalStrict(text, &rules); err != nil {
		t.Fatal(err)
	}
	return rules
}

// recorded is level:metric:operation, as Prometheus's own advice has it.
var recorded = regexp.MustCompile(`^[a-z_]+:[a-z_]+:[a-z0-9]+$`)

var (
	// targetLabels are given to all series by who scrapes.
	targetLabels = []string{"job", "instance", "node"}
	// deviceLabels are those of DCGM's fields.
	deviceLabels = []string{"Hostname", "gpu", "UUID", "pci_bus_id", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "device", "namespace", "pod", "container"}
)

// knownMetrics are the metrics that a Prometheus with the chart's rules has, each with
// its labels: those that docs/metrics.md lists, which is made from the exporter's code,
// without DCGM's fields that are off by default, and those that the rules record.
func knownMetrics(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{"up": targetLabels}
	for line := range strings.Lines(string(text)) {
		// | metric | type | is | of partitions | by default |, or
		// | metric | type | is | labels |
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) < 5 || cells[2] != "gauge" && cells[2] != "counter" {
			continue
		}
		name := strings.Trim(cells[1], "`")
		switch {
		case !strings.HasPrefix(name, "DCGM_"):
			known[name] = slices.Concat(targetLabels, strings.FieldsFunc(cells[4], func(r rune) bool { return strings.ContainsRune("`, ", r) }))
		case cells[5] == "yes":
			known[name] = slices.Concat(targetLabels, deviceLabels)
		}
	}
	if len(known) < 20 {
		t.Fatalf("only %d metrics found in docs/metrics.md", len(known))
	}
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			if rule.Record != "" {
				known[rule.Record] = checkQuery(t, rule.Record, rule.Expr, known).labels
			}
		}
	}
	return known
}

// checkQuery fails the test unless an expression can be read and names metrics and
// labels that exist.
func checkQuery(t *testing.T, where, text string, known map[string][]string) query {
	t.Helper()
	q, err := parseQuery(text)
	if err != nil {
		t.Errorf("%s: %v", where, err)
	}
	var labels []string
	for _, metric := range q.metrics {
		of, ok := known[metric]
		if !ok {
			t.Errorf("%s: there is no metric %s", where, metric)
		}
		labels = append(labels, of...)
	}
	for _, label := range q.labels {
		if !slices.Contains(labels, label) {
			t.Errorf("%s: none of %v has a label %s", where, q.metrics, label)
		}
	}
	return q
}

func TestRulesAreOfMetricsThatExist(t *testing.T) {
	known := knownMetrics(t)
	var alerts []string
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			checkQuery(t, rule.Record+rule.Alert, rule.Expr, known)
			if rule.Alert == "" {
				if !recorded.MatchString(rule.Record) {
					t.Errorf("%q is not level:metric:operation", rule.Record)
				}
				continue
			}
			alerts = append(alerts, rule.Alert)
			if !slices.Contains([]string{"warning", "critical"}, rule.Labels["severity"]) {
				t.Errorf("alert %s has the severity %q", rule.Alert, rule.Labels["severity"])
			}
			for _, name := range []string{"summary", "description"} {
				if text := rule.Annotations[name]; !strings.HasSuffix(text, ".") || strings.Contains(text, "\n") {
					t.Errorf("the %s of alert %s is no sentence: %q", name, rule.Alert, text)
				}
			}
		}
	}
	want := []string{
		"ApportionExporterDown", "ApportionExporterMissing", "ApportionSamplesStale",
		"ApportionOwnershipStale", "ApportionOwnershipErrors", "ApportionGPUXid", "ApportionGPUMemoryDefect",
	}
	if diff := cmp.Diff(want, alerts); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
}

// TestChargebackAddsUp: each rule of owners sums over everything but the owner, so that
// nobody's time or energy is left out or counted twice.
func TestChargebackAddsUp(t *testing.T) {
	want := map[string]string{
		"namespace:apportion_allocated_gpu_seconds:rate5m":          "sum by (namespace) (rate(apportion_allocated_gpu_seconds_total[5m]))",
		"namespace_workload:apportion_allocated_gpu_seconds:rate5m": "sum by (namespace, workload_kind, workload) (rate(apportion_allocated_gpu_seconds_total[5m]))",
		"cluster:apportion_unallocated_gpu_seconds:rate5m":          "sum(rate(apportion_unallocated_gpu_seconds_total[5m]))",
		"namespace:apportion_energy_joules:rate5m":                  "sum by (namespace) (rate(apportion_energy_joules_total[5m]))",
		"namespace_workload:apportion_energy_joules:rate5m":         "sum by (namespace, workload_kind, workload) (rate(apportion_energy_joules_total[5m]))",
	}
	got := map[string]string{}
	for _, group := range readRules(t).Groups {
		for _, rule := range group.Rules {
			if rule.Record != "" {
				got[rule.Record] = rule.Expr
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recording rules (-want +got):\n%s", diff)
	}
}

// TestPrometheusRuleIsTheFile: the chart changes nothing but the name of the job.
func TestPrometheusRuleIsTheFile(t *testing.T) {
	want := readRules(t)
	for i := range want.Groups {
		for j := range want.Groups[i].Rules {
			rule := &want.Groups[i].Rules[j]
			rule.Expr = strings.ReplaceAll(rule.Expr, `"apportion-exporter"`, `"prod-apportion-exporter"`)
		}
	}
	got := only[*prometheusRule](t, exporterObjects(t, Release{Name: "prod", Namespace: "gpus"}, monitored)).Spec
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
