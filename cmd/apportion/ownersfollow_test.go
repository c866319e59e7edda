package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// watching runs "owners -w" and gives what it prints each time; stop ends it, and gives
// its error.
func watching(t *testing.T, s surroundings, args ...string) (prints told, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	prints, ended := make(told), make(chan error, 1)
	go func() {
		_, err := owners(ctx, s, prints, append(args, "-w")...)
		ended <- err
	}()
	return prints, func() error {
		cancel()
		return <-ended
	}
}

// next is what is printed next.
func next(t *testing.T, prints told) string {
	t.Helper()
	select {
	case text := <-prints:
		return text
	case <-time.After(time.Hour): // Of synctest's clock: nothing goes on any more.
		t.Fatal("nothing is printed")
		return ""
	}
}

// quiet checks that nothing more is printed.
func quiet(t *testing.T, prints told) {
	t.Helper()
	select {
	case text := <-prints:
		t.Errorf("printed: %s", text)
	case <-time.After(time.Minute):
	}
}

func mustDo[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestWatchPrintsWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := podWith("team-a", "p", "c", "main")
		pod.Status.Phase = corev1.PodPending
		claim := claimOn("team-a", "c", "node-a", "gpu-4f3a1b2c", "10Gi", 0, pod)
		c := fakeCluster(t, sliceOf("node-a", gpuDevice("gpu-4f3a1b2c", uuidA, "40Gi")))
		claims, pods := c.typed.ResourceV1().ResourceClaims("team-a"), c.typed.CoreV1().Pods("team-a")
		prints, stop := watching(t, around(c))
		check(t, next(t, prints), "2026-07-01T12:00:00Z\nNobody holds a GPU\n\n")

		mustDo[*corev1.Pod](t)(pods.Create(t.Context(), pod, metav1.CreateOptions{}))
		quiet(t, prints) // It holds nothing yet.
		mustDo[*resourceapi.ResourceClaim](t)(claims.Create(t.Context(), claim, metav1.CreateOptions{}))
		check(t, next(t, prints), `
2026-07-01T12:00:00Z
NODE     GPU            PART    MEMORY   GPUS   NAMESPACE   CLAIM   POD   STATE     CONTAINERS   AGE
node-a   gpu-4f3a1b2c   share   10Gi     0.25   team-a      c       p     Waiting   main         0s

`)
		pod.Annotations = map[string]string{"nobody": "cares"}
		mustDo[*corev1.Pod](t)(pods.Update(t.Context(), pod, metav1.UpdateOptions{}))
		quiet(t, prints)
		pod.Status.Phase = corev1.PodRunning
		mustDo[*corev1.Pod](t)(pods.Update(t.Context(), pod, metav1.UpdateOptions{}))
		if text := next(t, prints); !strings.Contains(text, "p     Running   main") {
			t.Errorf("printed: %s", text)
		}
		if err := claims.Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check(t, next(t, prints), "2026-07-01T12:00:00Z\nNobody holds a GPU\n\n")
		if err := stop(); err != nil {
			t.Errorf("the watch ends with %v", err)
		}
	})
}

// Much that happens at once is printed once, and the last state always.
func TestWatchOfABusyClusterPrintsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeCluster(t)
		claims := c.typed.ResourceV1().ResourceClaims("team-a")
		prints, stop := watching(t, around(c), "-o", "json")
		next(t, prints)
		for i := range 100 {
			claim := claimOn("team-a", "c"+string(rune('a'+i%26))+string(rune('a'+i/26)), "node-a", "gpu-4f3a1b2c", "1Gi", 0)
			mustDo[*resourceapi.ResourceClaim](t)(claims.Create(t.Context(), claim, metav1.CreateOptions{}))
		}
		last, printed := "", 0
		for strings.Count(last, `"claim":`) < 100 {
			last = next(t, prints)
			printed++
		}
		if printed > 3 {
			t.Errorf("%d prints", printed)
		}
		quiet(t, prints)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestWatchOfWhatIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeCluster(t, testObjects()...)
		prints, stop := watching(t, around(c), "--by", "namespace", "-n", "team-b", "-o", "yaml")
		if text := next(t, prints); !strings.Contains(text, "used: 0.625\n") || !strings.HasSuffix(text, "---\n") {
			t.Errorf("printed: %s", text)
		}
		if err := c.typed.ResourceV1().ResourceClaims("team-b").Delete(t.Context(), "notebook", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if text := next(t, prints); !strings.Contains(text, "used: 0.125\n") {
			t.Errorf("printed: %s", text)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// breakable lets all watches of a resource break, and new ones fail while down.
func breakable(c *clients, resource string) (down *atomic.Bool, breakAll func()) {
	down = &atomic.Bool{}
	running := make(chan *watch.RaceFreeFakeWatcher, 100)
	c.typed.(*fake.Clientset).PrependWatchReactor(resource, func(clienttesting.Action) (bool, watch.Interface, error) {
		if down.Load() {
			return true, nil, errors.New("connection \x1b[2Jrefused")
		}
		w := watch.NewRaceFreeFake()
		running <- w
		return true, w, nil
	})
	return down, func() {
		for len(running) > 0 {
			(<-running).Stop()
		}
	}
}

// What was seen last stays, and is marked as old, until the API server is back.
func TestWatchSaysWhatIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeCluster(t, testObjects()...)
		down, breakAll := breakable(c, "pods")
		prints, stop := watching(t, around(c), "-n", "ops")
		first := next(t, prints)
		if strings.Count(first, "\n") != 4 {
			t.Errorf("printed: %s", first)
		}
		down.Store(true)
		breakAll()
		stale := next(t, prints)
		lines := strings.Split(stale, "\n")
		if !strings.HasPrefix(lines[1], "pods may be stale since ") || !strings.HasSuffix(lines[1], `connection \x1b[2Jrefused`) {
			t.Errorf("printed: %s", stale)
		}
		if without := strings.Join(append(lines[:1:1], lines[2:]...), "\n"); without != first {
			t.Errorf("what was seen last is gone: %s", stale)
		}
		down.Store(false)
		if again := next(t, prints); again != first {
			t.Errorf("printed: %s", again)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestWatchWithoutTheRightToListSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeCluster(t, testObjects()...)
		forbid(c, "list", "resourceslices")
		prints, stop := watching(t, around(c), "-n", "ops")
		if text := next(t, prints); !strings.Contains(text, "\n"+noSlices+"\nNODE") || !strings.Contains(text, "debug") {
			t.Errorf("printed: %s", text)
		}
		quiet(t, prints)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestWatchWithoutTheRightToWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeCluster(t, testObjects()...)
		c.typed.(*fake.Clientset).PrependWatchReactor("resourceclaims", func(clienttesting.Action) (bool, watch.Interface, error) {
			return true, nil, forbidden("resourceclaims")
		})
		prints, stop := watching(t, around(c))
		quiet(t, prints)
		if err := stop(); err == nil || !strings.Contains(err.Error(), "you may not watch resourceclaims.resource.k8s.io in all namespaces") {
			t.Errorf("it ends with %v", err)
		}
	})
}

// A name that is mistyped must not read as a free GPU for as long as somebody watches.
func TestWatchOfNamesThatAreNotThere(t *testing.T) {
	for _, test := range []struct{ flag, name, want string }{
		{"--gpu", "gpu-4f3a1b2d", `the cluster has no GPU or partition "gpu-4f3a1b2d"`},
		{"--pod", "wep", `there is no pod "wep" in any namespace`},
		{"--node", "node-z", `node "node-z" has no GPU of driver gpu.apportion.dev`},
	} {
		synctest.Test(t, func(t *testing.T) {
			prints, stop := watching(t, around(fakeCluster(t, testObjects()...)), test.flag, test.name)
			quiet(t, prints)
			if err := stop(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s %s: it ends with %v, want %s", test.flag, test.name, err, test.want)
			}
		})
	}
}

// A GPU that is there may be nobody's, and one that was may go.
func TestWatchOfAGPUThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slice := sliceOf("node-a", gpuDevice("gpu-4f3a1b2c", uuidA, "40Gi"))
		c := fakeCluster(t, slice, claimOn("team-a", "c", "node-a", "gpu-4f3a1b2c", "10Gi", 0))
		prints, stop := watching(t, around(c), "--gpu", "gpu-4f3a1b2c")
		next(t, prints)
		if err := c.typed.ResourceV1().ResourceSlices().Delete(t.Context(), slice.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		next(t, prints)
		if err := c.typed.ResourceV1().ResourceClaims("team-a").Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check(t, next(t, prints), "2026-07-01T12:00:00Z\nNobody holds gpu-4f3a1b2c\n\n")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Nobody reads any more: the watch must end, as "owners -w | head -1" would not.
func TestWatchEndsWhenItCannotPrint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		if err := reader.CloseWithError(errors.New("broken pipe")); err != nil {
			t.Fatal(err)
		}
		if _, err := owners(t.Context(), around(fakeCluster(t)), writer, "-w"); err == nil || err.Error() != "broken pipe" {
			t.Errorf("it ends with %v", err)
		}
	})
}

func TestWatchInATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeCluster(t, testObjects()...)
		s := around(c)
		width, height := 160, 5
		s.terminal = func(io.Writer) (int, int, bool) { return width, height, true }
		prints, stop := watching(t, s)
		// Four lines fit above the cursor's.
		check(t, next(t, prints), "\x1b[H"+
			"2026-07-01T12:00:00Z\x1b[K\r\n"+
			"NODE     GPU            PART       MEMORY   GPUS    NAMESPACE   CLAIM      POD                  STATE         CONTAINERS             AGE\x1b[K\r\n"+
			"node-a   gpu-0badcafe   1g.5gb@0   4864Mi   0.125   team-b      small      small                Running       sidecar:proxy,server   90s\x1b[K\r\n"+
			"... 5 more lines: --gpu, --node, --namespace and --pod show less\x1b[K\r\n"+
			"\x1b[J")
		width, height = 80, 50
		if err := c.typed.ResourceV1().ResourceClaims("team-a").Delete(t.Context(), "embed", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if text := next(t, prints); !strings.Contains(text, "\r\nnode-a  gpu-4f3a1b2c\x1b[K\r\n") || strings.Count(text, "\r\n") != 15 {
			t.Errorf("printed: %q", text)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
