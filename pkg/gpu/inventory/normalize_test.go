package inventory

import "testing"

func TestParseVersion(t *testing.T) {
	for raw, want := range map[string]string{
		"580.95.05":      "580.95.5",
		"570.124.06":     "570.124.6",
		"470.256.02":     "470.256.2",
		"390.157":        "390.157.0",
		"13.0":           "13.0.0",
		"9":              "9.0.0",
		" 580.95.05\n":   "580.95.5",
		"":               "",
		"580.95.05.01":   "",
		"580.95.05-beta": "",
		"580..05":        "",
		"-1.0":           "",
		"+1.0":           "",
		"v1.0":           "",
	} {
		if got := ParseVersion(raw).Semver; got != want {
			t.Errorf("ParseVersion(%q) is %q, want %q", raw, got, want)
		}
	}
}

func TestCUDAVersion(t *testing.T) {
	for v, want := range map[int]Version{
		13000: {Raw: "13.0", Semver: "13.0.0"},
		12090: {Raw: "12.9", Semver: "12.9.0"},
		11080: {Raw: "11.8", Semver: "11.8.0"},
		0:     {},
		-1:    {},
	} {
		if got := cudaVersion(v); got != want {
			t.Errorf("cudaVersion(%d) is %v, want %v", v, got, want)
		}
	}
}

func TestNormalizePCIBusID(t *testing.T) {
	for address, want := range map[string]string{
		"00000000:07:00.0": "0000:07:00.0",
		"0000:AF:1F.7":     "0000:af:1f.7",
		"07:00.0":          "0000:07:00.0",
		"00000001:00:00.0": "0001:00:00.0",
		"00010000:01:00.0": "10000:01:00.0",
		" 0000:07:00.0 ":   "0000:07:00.0",
	} {
		if got, err := NormalizePCIBusID(address); err != nil || got != want {
			t.Errorf("NormalizePCIBusID(%q) is %q, %v, want %q", address, got, err, want)
		}
	}
	for _, address := range []string{"", "0000:07:00", "0000:07:00.8", "000:07:00.0", "000000000:07:00.0", "0000:7:00.0", "0000-07-00.0", "x0000:07:00.0"} {
		if got, err := NormalizePCIBusID(address); err == nil {
			t.Errorf("NormalizePCIBusID(%q) is %q, want an error", address, got)
		}
	}
}
