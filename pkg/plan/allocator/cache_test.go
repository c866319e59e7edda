package allocator

import "testing"

func TestInstanceTypesThatTwoLoopsDidNotAskForAreForgotten(t *testing.T) {
	c := NewCache()
	asked, other := &InstanceType{Name: "asked"}, &InstanceType{Name: "other"}
	first, _ := c.instanceTypes([]*InstanceType{asked, other})
	for range 3 {
		c.next()
		again, _ := c.instanceTypes([]*InstanceType{asked})
		if again[0] != first[0] {
			t.Error("what every loop asks for was made anew")
		}
	}
	if n := len(c.types.current) + len(c.types.previous); n != 2 { // "asked", in both
		t.Errorf("%d entries", n)
	}
	if n := len(c.sets.current) + len(c.sets.previous); n != 0 {
		t.Errorf("%d sets of templates", n)
	}
}
