package admission

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// review is a review of an object; operation is CREATE by default.
func review(resource, object string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionReview {
	kinds := map[string]string{resourceClaims: "ResourceClaim", resourceTemplates: "ResourceClaimTemplate", deviceClasses: "DeviceClass"}
	request := &admissionv1.AdmissionRequest{
		UID:  "uid-1",
		Kind: metav1.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: kinds[resource]}, Resource: metav1.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: resource},
		Name: "c", Namespace: "default", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)},
	}
	if object == "" {
		request.Object.Raw = nil
	}
	for _, c := range change {
		c(request)
	}
	return &admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request}
}

func updateOf(old string) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) {
		r.Operation, r.OldObject = admissionv1.Update, runtime.RawExtension{Raw: []byte(old)}
	}
}

func operation(o admissionv1.Operation) func(*admissionv1.AdmissionRequest) {
	return func(r *admissionv1.AdmissionRequest) { r.Operation = o }
}

// send posts a body as the API server does, and returns the status and the answer.
func send(t *testing.T, handler http.Handler, method, contentType string, body []byte) (int, string) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL+Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func ask(t *testing.T, handler http.Handler, r *admissionv1.AdmissionReview) *admissionv1.AdmissionResponse {
	t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	status, answer := send(t, handler, http.MethodPost, "application/json", body)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, answer)
	}
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Fatal(err)
	}
	if got.Response == nil || got.Response.UID != r.Request.UID || got.APIVersion != r.APIVersion || got.Kind != r.Kind {
		t.Fatalf("answer %s", answer)
	}
	return got.Response
}

func TestReviews(t *testing.T) {
	bad, worse := claim(entry(driver, negativeLimit)), claim(entry(driver, twoWrong))
	deleted := strings.Replace(worse, `"metadata":{`, `"metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z",`, 1)
	labelled := strings.Replace(bad, `"metadata":{`, `"metadata":{"labels":{"a":"b"},`, 1)
	for _, test := range []struct {
		name   string
		review *admissionv1.AdmissionReview
		denied string // Part of the message; empty where it is allowed.
	}{
		{"good claim", review(resourceClaims, claim(entry(driver, good))), ""},
		{"bad claim", review(resourceClaims, bad), `ResourceClaim.resource.k8s.io "c" is invalid: spec.devices.config[0].opaque.parameters.memory.softLimit`},
		{"bad template", review(resourceTemplates, template(entry(driver, negativeLimit))), `ResourceClaimTemplate.resource.k8s.io "c" is invalid: spec.spec.devices.config[0]`},
		{"bad class", review(deviceClasses, class(entry(driver, negativeLimit))), `DeviceClass.resource.k8s.io "c" is invalid: spec.config[0]`},
		{"class made bad", review(deviceClasses, class(entry(driver, negativeLimit)), updateOf(class(entry(driver, good)))), "spec.config[0]"},
		{"class made good", review(deviceClasses, class(entry(driver, good)), updateOf(class(entry(driver, negativeLimit)))), ""},
		{"a label for what was bad before", review(resourceClaims, labelled, updateOf(bad)), ""},
		{"bad in another way", review(resourceClaims, worse, updateOf(bad)), "memory.enforcement"},
		{"finalizer of what was bad", review(resourceClaims, deleted, updateOf(bad)), ""},
		{"deletion", review(resourceClaims, "", operation(admissionv1.Delete)), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			response := ask(t, newReviewer(driver, NewMetrics()), test.review)
			if response.Allowed != (test.denied == "") {
				t.Fatalf("allowed: %t, %+v", response.Allowed, response.Result)
			}
			if response.Allowed {
				return
			}
			if r := response.Result; r.Code != http.StatusUnprocessableEntity || r.Reason != metav1.StatusReasonInvalid || !strings.Contains(r.Message, test.denied) || len(r.Details.Causes) == 0 {
				t.Errorf("result %+v, want one with %q", r, test.denied)
			}
		})
	}
}

// TestWhatIsNoReviewIsAnError: the API server then does what the failure policy
// says, and neither allows nor refuses by a misunderstanding.
func TestWhatIsNoReviewIsAnError(t *testing.T) {
	const json = "application/json"
	ok := func(change ...func(*admissionv1.AdmissionRequest)) string {
		return marshal(t, review(resourceClaims, claim(entry(driver, good)), change...))
	}
	for _, test := range []struct {
		name, method, contentType, body string
		status                          int
		want                            string
	}{
		{"method", http.MethodGet, json, "", 405, "POST"},
		{"content type", http.MethodPost, "application/x-protobuf", ok(), 415, "application/json"},
		{"no content type", http.MethodPost, "", ok(), 415, "application/json"},
		{"empty", http.MethodPost, json, "", 400, "read the review"},
		{"no JSON", http.MethodPost, json, "{", 400, "read the review"},
		{"deep", http.MethodPost, json, strings.Repeat(`{"request":`, 200_000), 400, "read the review"},
		{"null", http.MethodPost, json, "null", 400, "AdmissionReview"},
		{"version", http.MethodPost, json, strings.Replace(ok(), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1), 400, "admission.k8s.io/v1"},
		{"no request", http.MethodPost, json, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, 400, "no request"},
		{"another group", http.MethodPost, json, ok(func(r *admissionv1.AdmissionRequest) { r.Resource.Group = "apps" }), 400, `"apps"`},
		{"another resource", http.MethodPost, json, ok(func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "resourceslices" }), 400, `"resourceslices"`},
		{"object is a list", http.MethodPost, json, ok(func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`[]`) }), 400, "read the object"},
		{"no object", http.MethodPost, json, ok(func(r *admissionv1.AdmissionRequest) { r.Object.Raw = nil }), 400, "read the object"},
		{"too large", http.MethodPost, json, `{"x":"` + strings.Repeat("x", maxReview) + `"}`, 413, "longer than 3145728 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, answer := send(t, newReviewer(driver, NewMetrics()), test.method, test.contentType, []byte(test.body))
			if status != test.status || !strings.Contains(answer, test.want) {
				t.Errorf("status %d, %.200q; want %d with %q", status, answer, test.status, test.want)
			}
		})
	}
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReviewsAreCounted(t *testing.T) {
	metrics := NewMetrics()
	handler := newReviewer(driver, metrics)
	ask(t, handler, review(resourceClaims, claim(entry(driver, good))))
	ask(t, handler, review(resourceClaims, claim(entry(driver, typo))))
	ask(t, handler, review(deviceClasses, class()))
	send(t, handler, http.MethodPost, "application/json", []byte("x"))
	counts := samples(t, metrics, "apportion_webhook_review_duration_seconds")
	want := map[string]float64{"resourceclaims allowed": 1, "resourceclaims denied": 1, "deviceclasses allowed": 1, " invalid": 1}
	for key, n := range want {
		if counts[key] != n {
			t.Errorf("%q: %v, want %v", key, counts[key], n)
		}
	}
	if len(counts) != len(want) {
		t.Errorf("counted %v", counts)
	}
}

// samples are the values of a metric, or the counts of a histogram, by its labels.
func samples(t *testing.T, m *Metrics, name string) map[string]float64 {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, pair := range metric.GetLabel() {
				labels = append(labels, pair.GetValue())
			}
			// Those that a metric is not of are 0.
			values[strings.Join(labels, " ")] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func FuzzReview(f *testing.F) {
	handler := newReviewer(driver, NewMetrics())
	for _, parameters := range []string{good, twoWrong, typo, unlimited, "null", `{"apiVersion":1}`, nvidiaGood} {
		f.Add(resourceClaims, claim(entry(driver, parameters, "one")))
		f.Add(resourceTemplates, template(entry(driver, parameters, "two/big"), entry(driver, parameters)))
		f.Add(deviceClasses, class(entry(driver, parameters)))
	}
	f.Fuzz(func(t *testing.T, resource, object string) {
		if !json.Valid([]byte(object)) {
			return
		}
		response, err := handler.answer(review(resource, object).Request)
		if err == nil && !response.Allowed && (response.Result == nil || response.Result.Message == "") {
			t.Errorf("refused without a reason: %s", object)
		}
	})
}
