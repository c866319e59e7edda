package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// dashboard is what of a dashboard of Grafana the tests look at.
type dashboard struct {
	UID, Title, Description string
	Tags                    []string
	Templating              struct {
		List []struct {
			Name, Type, Definition string
			Query                  json.RawMessage
		}
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  struct{ Type, UID string }
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ Type, UID string }
	}
	Transformations []struct {
		ID      string
		Options struct {
			IndexByName  map[string]int
			RenameByName map[string]string
		}
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir, "dashboards", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]dashboard{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = d
	}
	return all
}

var (
	labelValues = regexp.MustCompile(`^label_values\((.+), ([A-Za-z_]+)\)$`)
	variable    = regexp.MustCompile(`\$([A-Za-z]\w*)`)
	legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// TestDashboardsAreOfMetricsThatExist: each expression can be read, names metrics that
// the exporter has and variables that the dashboard has, and each legend shows labels
// that the expression leaves.
func TestDashboardsAreOfMetricsThatExist(t *testing.T) {
	known := knownMetrics(t)
	for name, d := range dashboards(t) {
		t.Run(name, func(t *testing.T) {
			variables := []string{"__rate_interval", "__range"}
			for _, v := range d.Templating.List {
				variables = append(variables, v.Name)
			}
			checkVariables := func(where, text string) {
				for _, used := range variable.FindAllStringSubmatch(text, -1) {
					if !slices.Contains(variables, used[1]) {
						t.Errorf("%s: there is no variable %s", where, used[1])
					}
				}
			}
			for _, v := range d.Templating.List[1:] {
				parts := labelValues.FindStringSubmatch(v.Definition)
				if v.Type != "query" || parts == nil || !bytes.Contains(v.Query, []byte(strings.ReplaceAll(v.Definition, `"`, `\"`))) {
					t.Errorf("variable %s is %s %s, and %s", v.Name, v.Type, v.Definition, v.Query)
					continue
				}
				checkQuery(t, "variable "+v.Name, "max by ("+parts[2]+") ("+parts[1]+")", known)
				checkVariables("variable "+v.Name, parts[1])
			}
			for _, p := range d.Panels {
				for _, target := range p.Targets {
					where := "panel " + p.Title
					labels := checkQuery(t, where, target.Expr, known).labels
					checkVariables(where, target.Expr)
					for _, used := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
						if !slices.Contains(labels, used[1]) {
							t.Errorf("%s: the legend shows %s, which the expression does not name: %s", where, used[1], target.Expr)
						}
					}
				}
				checkColumns(t, p)
			}
		})
	}
}

// checkColumns: the columns of a table that are put in order or renamed are there.
func checkColumns(t *testing.T, p panel) {
	t.Helper()
	columns := []string{"Value"}
	for _, target := range p.Targets {
		q, err := parseQuery(target.Expr)
		if err != nil {
			return // Said already.
		}
		columns = append(append(columns, q.labels...), "Value #"+target.RefID)
	}
	for _, transformation := range p.Transformations {
		for column := range transformation.Options.IndexByName {
			if !slices.Contains(columns, column) {
				t.Errorf("panel %s: there is no column %s to put in order", p.Title, column)
			}
		}
		for column := range transformation.Options.RenameByName {
			if !slices.Contains(columns, column) {
				t.Errorf("panel %s: there is no column %s to rename", p.Title, column)
			}
		}
	}
}

// TestDashboardsCanBeShown: what Grafana needs of a dashboard.
func TestDashboardsCanBeShown(t *testing.T) {
	var views []string
	for name, d := range dashboards(t) {
		view := strings.TrimSuffix(name, ".json")
		views = append(views, view)
		if d.UID != "apportion-"+view || d.Title == "" || d.Description == "" || !slices.Contains(d.Tags, "apportion") {
			t.Errorf("%s: uid %q, title %q, description %q, tags %v", name, d.UID, d.Title, d.Description, d.Tags)
		}
		if first := d.Templating.List[0]; first.Name != "datasource" || first.Type != "datasource" {
			t.Errorf("%s: the first variable is %s of type %s", name, first.Name, first.Type)
		}
		ids := map[int]bool{}
		for i, p := range d.Panels {
			if ids[p.ID] || p.Title == "" || p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: panel %d %q at %+v", name, p.ID, p.Title, p.GridPos)
			}
			ids[p.ID] = true
			if (p.Type == "row") != (len(p.Targets) == 0) {
				t.Errorf("%s: panel %q of type %s has %d expressions", name, p.Title, p.Type, len(p.Targets))
			}
			for _, target := range p.Targets {
				if p.Datasource.UID != "${datasource}" || target.Datasource != p.Datasource {
					t.Errorf("%s: panel %q asks %+v and %+v", name, p.Title, p.Datasource, target.Datasource)
				}
			}
			for _, other := range d.Panels[:i] {
				a, b := p.GridPos, other.GridPos
				if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
					t.Errorf("%s: panels %q and %q overlap", name, other.Title, p.Title)
				}
			}
		}
	}
	slices.Sort(views)
	if diff := cmp.Diff([]string{"gpu", "namespace", "node", "workload"}, views); diff != "" {
		t.Errorf("views (-want +got):\n%s", diff)
	}
}

// TestDashboardsReachGrafana: the chart changes nothing of them.
func TestDashboardsReachGrafana(t *testing.T) {
	const folder = "exporter: {dashboard: {enabled: true, labels: {grafana_dashboard: null, dashboards: gpu}, annotations: {grafana_folder: GPUs}}}"
	for values, want := range map[string][3]string{monitored: {"1", "", ""}, folder: {"", "gpu", "GPUs"}} {
		config := only[*corev1.ConfigMap](t, exporterObjects(t, release, values))
		got := [3]string{config.Labels["grafana_dashboard"], config.Labels["dashboards"], config.Annotations["grafana_folder"]}
		if got != want {
			t.Errorf("values %q: labels and annotations %q, want %q", values, got, want)
		}
	}
	config := only[*corev1.ConfigMap](t, exporterObjects(t, release, monitored))
	got := map[string]dashboard{}
	for name, text := range config.Data {
		var d dashboard
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		got[name] = d
	}
	if diff := cmp.Diff(dashboards(t), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
