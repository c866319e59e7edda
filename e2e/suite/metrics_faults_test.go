package suite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"apportion.dev/apportion/e2e/cluster"
)

// TestOwnersStayRightWhateverFails has a Prometheus scrape a node all the time. What
// one part does not know while another is away, it must not make up, and all must find
// together again by themselves.
func TestOwnersStayRightWhateverFails(t *testing.T) {
	n, machine := node(t, "node-b")
	found := gpus(t, machine, a100)
	s := newSpace(t)
	m := measure(t, s, n.Name)
	m.template("whole", asks(request("gpu", wholeOf(is("uuid", found[0].UUID)))))
	m.template("share", asks(request("gpu", shareOf("10Gi", is("uuid", found[1].UUID)))))
	for name, template := range map[string]string{"whole": "whole", "steady": "share", "shared": "share"} {
		m.start(usesTemplate(name, template))
	}
	for _, name := range []string{"whole", "steady", "shared"} {
		m.running(name, user{"", work, ""})
	}
	m.scrapes(3)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *measured, *cluster.Node)
	}{
		{"plugin killed", ownersWithoutPlugin},
		{"exporter killed", ownersWithoutExporter},
		{"API server down", ownersWithoutAPIServer},
		{"plugin killed while the API server is down", ownersWithoutPluginAndAPIServer},
	} {
		t.Run(test.name, func(t *testing.T) {
			// Each part looks at its own time.
			inner := *m
			inner.space, inner.from = &space{t: t, name: s.name}, time.Now()
			test.run(t, &inner, n)
			// Who comes and goes afterwards is seen, too.
			inner.replace("whole")
			inner.scrapes(3)
			inner.check()
		})
	}
	m.from = time.Now()
	m.scrapes(3)
	m.delete("whole", "steady", "shared")
	m.scrapes(3)
	m.check()
}

// replace deletes a pod and makes another of its name and template.
func (m *measured) replace(name string) {
	m.t.Helper()
	m.delete(name)
	m.start(usesTemplate(name, name))
	m.running(name, user{"", work, ""})
}

// restartsOf counts how often the plugin and the exporter of a node were started anew.
type restartsOf struct{ plugin, exporter int32 }

func countRestarts(t *testing.T, n *cluster.Node) restartsOf {
	t.Helper()
	return restartsOf{restarts(pluginPod(t, n)), restarts(exporterPod(t, n.Name))}
}

// wantRestarts checks that only those were started anew that the test killed.
func wantRestarts(t *testing.T, n *cluster.Node, before restartsOf, plugin, exporter int32) {
	t.Helper()
	want := restartsOf{before.plugin + plugin, before.exporter + exporter}
	if got := countRestarts(t, n); got != want {
		t.Errorf("the plugin and the exporter were started anew %d and %d times, want %d and %d", got.plugin, got.exporter, want.plugin, want.exporter)
	}
}

func ownersWithoutPlugin(t *testing.T, m *measured, n *cluster.Node) {
	before, failures := countRestarts(t, n), m.value("apportion_ownership_errors_total")
	killPlugin(t, n)
	m.scrapes(3)
	wantRestarts(t, n, before, 1, 0)
	// It shows that the exporter did not know more meanwhile.
	if now := m.value("apportion_ownership_errors_total"); now <= failures {
		t.Errorf("the exporter counts %v errors of the ownership service, %v before the plugin was killed", now, failures)
	}
	if age := m.value("apportion_ownership_age_seconds"); age > 5 {
		t.Errorf("afterwards owners are %v seconds old", age)
	}
}

// value is that of a metric without labels of its own in the last scrape of the only
// node.
func (m *measured) value(metric string) float64 {
	m.t.Helper()
	series, err := m.prometheus.Query(m.t.Context(), metric, time.Now())
	if err != nil || len(series) != 1 {
		m.t.Fatalf("%s is %v, %v; want one series", metric, series, err)
	}
	return series[0].Samples[0].Value
}

func ownersWithoutExporter(t *testing.T, m *measured, n *cluster.Node) {
	before := countRestarts(t, n)
	if err := n.Signal(t.Context(), "KILL", exporterProgram); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the exporter is started again", func(context.Context) (bool, error) {
		now := countRestarts(t, n)
		return now.exporter > before.exporter, fmt.Errorf("it was started anew %d times", now.exporter)
	})
	m.scrapes(3)
	wantRestarts(t, n, before, 0, 1)
}

// ownersWithoutAPIServer has a pod end while there is no API server.
func ownersWithoutAPIServer(t *testing.T, m *measured, n *cluster.Node) {
	before := countRestarts(t, n)
	claim := m.startEnding("ending")
	restore := stopAPIServer(t)
	defer restore()
	m.scrapes(5)
	m.endByItself("ending", claim, n)
	m.scrapes(60)
	restore()
	m.space.deletePods("ending")
	wantRestarts(t, n, before, 0, 0)
}

// ownersWithoutPluginAndAPIServer has the plugin start without an API server to ask.
func ownersWithoutPluginAndAPIServer(t *testing.T, m *measured, n *cluster.Node) {
	before, exporter := pluginPod(t, n), restarts(exporterPod(t, n.Name))
	restore := stopAPIServer(t)
	defer restore()
	if err := n.Signal(t.Context(), "KILL", program); err != nil {
		t.Fatal(err)
	}
	// A plugin that has just started keeps to itself for some seconds what it may not
	// know as well as the one before.
	m.scrapes(20)
	restore()
	pluginIsBack(t, n, before)
	m.scrapes(3)
	if now := restarts(exporterPod(t, n.Name)); now != exporter {
		t.Errorf("the exporter was started anew %d times meanwhile", now-exporter)
	}
}

// stopAPIServer ends the API server until restore is called, which may be done twice.
func stopAPIServer(t *testing.T) (restore func()) {
	t.Helper()
	if err := theCluster.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	down := true
	return func() {
		t.Helper()
		if !down {
			return
		}
		down = false
		// The test's context may have ended, and the other tests need the API server.
		if err := theCluster.StartAPIServer(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}

// startEnding starts a pod with a share, the only one of the node whose process can be
// told from others, and returns its claim.
func (m *measured) startEnding(name string) types.UID {
	m.t.Helper()
	m.start(allocating(usesTemplate(name, "share"), allocates(work, "", "3Gi")))
	m.running(name, user{"", work, "3Gi"})
	m.scrapes(3)
	return m.claimOf(m.pod(name), entry).UID
}

// endByItself ends the process of such a pod, and waits until the plugin has released
// what the pod had: its record is gone. Only the node can tell.
func (m *measured) endByItself(podName string, claim types.UID, n *cluster.Node) {
	m.t.Helper()
	m.end(podName)
	if err := n.Signal(m.t.Context(), "TERM", "apportion"); err != nil {
		m.t.Fatal(err)
	}
	record := n.BackingPath(filepath.Join(claimsDir, string(claim)+".json"))
	waitFor(m.t, "what pod "+podName+" had is released", func(context.Context) (bool, error) {
		_, err := os.Stat(record)
		return errors.Is(err, fs.ErrNotExist), err
	})
	m.ended(podName)
}
