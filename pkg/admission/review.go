package admission

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"
)

const (
	// maxReview is the longest review that is read, in bytes: what the API server
	// takes from a user. A review holds the new and the old object, each with at
	// most 32 parameters of 10 KiB and 256 KiB of annotations.
	maxReview = 3 << 20
	// maxParallel is how many reviews are read and checked at once; others wait.
	// With maxReview it bounds the memory that anybody in the cluster's network
	// can make the webhook use.
	maxParallel = 16
)

// Results of a review, as the metrics name them.
const (
	resultAllowed = "allowed"
	resultDenied  = "denied"
	resultInvalid = "invalid" // not a review that the webhook understands
)

// reviewer answers the API server's reviews.
type reviewer struct {
	driver  string
	metrics *Metrics
	slots   chan struct{}
}

func newReviewer(driver string, metrics *Metrics) *reviewer {
	return &reviewer{driver: driver, metrics: metrics, slots: make(chan struct{}, maxParallel)}
}

func (v *reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case v.slots <- struct{}{}:
		defer func() { <-v.slots }()
	case <-r.Context().Done():
		return // the API server waits no longer
	}
	started := time.Now()
	logger := klog.FromContext(r.Context())
	review, status, err := readReview(w, r)
	if err == nil {
		review.Response, err = v.answer(review.Request)
		status = http.StatusBadRequest
	}
	if err != nil {
		logger.V(1).Info("A request cannot be answered", "from", r.RemoteAddr, "err", err)
		v.metrics.observeReview("", resultInvalid, started)
		http.Error(w, err.Error(), status)
		return
	}
	result := resultAllowed
	if !review.Response.Allowed {
		result = resultDenied
		logger.V(2).Info("Refused", "resource", review.Request.Resource.Resource, "object", klog.KRef(review.Request.Namespace, review.Request.Name),
			"user", review.Request.UserInfo.Username, "reason", review.Response.Result.Message)
	}
	v.metrics.observeReview(review.Request.Resource.Resource, result, started)
	review.Request = nil // the answer has no need of the object
	body, err := json.Marshal(review)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(body); err != nil {
		logger.V(2).Info("The API server did not take the answer", "err", err)
	}
}

// readReview reads a review, or returns the HTTP status that says what is wrong.
func readReview(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionReview, int, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, http.StatusMethodNotAllowed, fmt.Errorf("method %s: reviews are sent by POST", r.Method)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, http.StatusUnsupportedMediaType, fmt.Errorf("content type %q: send application/json", r.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the review is longer than %d bytes", tooLarge.Limit)
	} else if err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("read the review: %w", err)
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("read the review: %w", err)
	}
	if want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"); review.GroupVersionKind() != want {
		return nil, http.StatusBadRequest, fmt.Errorf("the review is a %q of %q: send %s of %s", review.Kind, review.APIVersion, want.Kind, want.GroupVersion())
	}
	if review.Request == nil {
		return nil, http.StatusBadRequest, errors.New("the review has no request")
	}
	return review, 0, nil
}

// answer decides about a request. An error means that the request itself is not
// understood: then the webhook's failure policy decides.
func (v *reviewer) answer(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	allowed := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	if request.Resource.Group != resourceapi.GroupName {
		return nil, fmt.Errorf("group %q %w", request.Resource.Group, errOtherResource)
	}
	switch request.Operation {
	case admissionv1.Create, admissionv1.Update:
	default:
		return allowed, nil
	}
	next, err := readSubject(request.Resource.Resource, request.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	if request.Operation == admissionv1.Update {
		// An object that was written before the webhook was there, or that an
		// older version allowed, must still get its labels, and lose its finalizers.
		old, err := readSubject(request.Resource.Resource, request.OldObject.Raw)
		if err == nil && (next.deleted || next.sameParameters(old)) {
			return allowed, nil
		}
	}
	errs := next.validate(v.driver)
	if len(errs) == 0 {
		return allowed, nil
	}
	status := apierrors.NewInvalid(schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}, request.Name, errs).Status()
	return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: false, Result: &status}, nil
}
