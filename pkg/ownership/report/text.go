package report

import (
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// age is for how long something is, "-" if that is not known.
func age(since, now time.Time) string {
	if since.IsZero() || now.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(since)))
}

// parts writes a number of GPUs.
func parts(gpus float64) string {
	return strconv.FormatFloat(math.Round(gpus*1e3)/1e3, 'f', -1, 64)
}

// rounded takes away what adding up fractions leaves behind.
func rounded(gpus float64) float64 { return math.Round(gpus*1e9) / 1e9 }

// percent writes a share of a whole.
func percent(share float64) string { return strconv.FormatFloat(share*100, 'f', 1, 64) + "%" }
