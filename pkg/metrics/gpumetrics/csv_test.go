package gpumetrics

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCSV(t *testing.T) {
	for _, test := range []struct {
		name, file     string
		known, unknown []string
		err            string
	}{
		{name: "nothing", file: ""},
		{
			name: "as dcgm-exporter's own files",
			file: `# Format
# DCGM FIELD, Prometheus metric type, help message

# Clocks
DCGM_FI_DEV_SM_CLOCK,  gauge, SM clock frequency (in MHz).
DCGM_FI_DEV_DEC_UTIL ,     gauge, Decoder utilization (in %).
# DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, counter, Total number of single-bit volatile ECC errors.
  # Indented
DCGM_FI_DRIVER_VERSION,        label, Driver Version
`,
			known: []string{"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DRIVER_VERSION"},
		},
		{
			name: "unknown and repeated names",
			file: "DCGM_EXP_XID_ERRORS_COUNT, gauge, Errors\nDCGM_FI_DEV_GPU_TEMP, gauge, T\nDCGM_FI_DEV_GPU_TEMP, gauge, T\n" +
				"dcgm_gpu_temp, gauge, T\nDCGM_EXP_XID_ERRORS_COUNT, gauge, Errors\n",
			known:   []string{"DCGM_FI_DEV_GPU_TEMP"},
			unknown: []string{"DCGM_EXP_XID_ERRORS_COUNT", "dcgm_gpu_temp"},
		},
		{
			name:  "commas and quotes in the help",
			file:  "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature, in C, of the \"GPU\".\nDCGM_FI_DEV_FB_USED, gauge, \"Used, in MiB\"\n",
			known: []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED"},
		},
		{
			name:  "a help that begins with a quote hides no field",
			file:  "DCGM_FI_DEV_GPU_TEMP, gauge, \"GPU\" temperature\nDCGM_FI_DEV_FB_USED, gauge, Used\nDCGM_FI_DEV_FB_FREE, gauge, Free\n",
			known: []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"},
		},
		{name: "Windows lines", file: "DCGM_FI_DEV_GPU_TEMP, gauge, T\r\n", known: []string{"DCGM_FI_DEV_GPU_TEMP"}},
		{name: "no help", file: "# a comment\nDCGM_FI_DEV_GPU_TEMP, gauge\n", err: "line 2"},
		{name: "no name", file: ", gauge, Temperature\n", err: "line 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			known, unknown, err := ParseCSV(strings.NewReader(test.file))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error is %v, want one that says %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.known, known); diff != "" {
				t.Errorf("known (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.unknown, unknown); diff != "" {
				t.Errorf("unknown (-want +got):\n%s", diff)
			}
		})
	}
}
