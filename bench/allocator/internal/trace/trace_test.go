package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNew(t *testing.T) {
	a, err := New(1)
	if err != nil {
		t.Fatal(err)
	}
	again, err := New(1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a.Claims, again.Claims); diff != "" {
		t.Errorf("the same seed makes other claims:\n%s", diff)
	}
	if cmp.Equal(a.Claims, b.Claims) {
		t.Error("another seed makes the same claims")
	}
	if len(a.Pods) != 80 || len(a.Claims) != 80 {
		t.Errorf("%d pods with %d claims", len(a.Pods), len(a.Claims))
	}
}

func TestKinds(t *testing.T) {
	sum := 0
	for _, k := range kinds() {
		sum += k.often
	}
	if sum != 100 {
		t.Errorf("kinds add up to %d in a hundred", sum)
	}
}
