package fakeroot

import "testing"

func TestCUDAVersionFollowsTheDriver(t *testing.T) {
	for driver, want := range map[string]string{
		"580.95.05": "13.580.95.05", "570.124.06": "12.570.124.06", "470.82.01": "11.470.82.01",
	} {
		if got := NVMLVersion(driver); got != want {
			t.Errorf("%s: NVML %s, want %s", driver, got, want)
		}
	}
	for driver, want := range map[string]int{
		"580.95.05": 13000, "570.124.06": 12080, "999.10": 13040, "535.183.01": 12020, "440.33.01": 10020,
	} {
		if got := CUDAVersion(driver); got != want {
			t.Errorf("%s: CUDA %d, want %d", driver, got, want)
		}
	}
}
