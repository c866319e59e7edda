package promtest

import (
	"context"
	"fmt"
	"time"

	promapi "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Series is what an expression gives for one set of labels.
type Series struct {
	// Labels has the name of a metric as __name__.
	Labels  map[string]string
	Samples []Sample
}

// Sample is a value at a time.
type Sample struct {
	Time  time.Time
	Value float64
}

// Query evaluates an expression at a time. A metric with a range, such as up[2m],
// gives the samples as they were scraped; all else gives one sample a series, and a
// number one series without labels. The order of the series is Prometheus's.
func (s *Server) Query(ctx context.Context, expression string, at time.Time) ([]Series, error) {
	// Prometheus keeps milliseconds, and would round to the next one.
	value, warnings, err := promapi.NewAPI(s.client).Query(ctx, expression, at.Truncate(time.Millisecond))
	if err == nil && len(warnings) > 0 {
		err = fmt.Errorf("the answer is incomplete: %v", warnings)
	}
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", expression, err)
	}
	var all []Series
	switch value := value.(type) {
	case model.Vector:
		for _, one := range value {
			all = append(all, series(one.Metric, model.SamplePair{Timestamp: one.Timestamp, Value: one.Value}))
		}
	case model.Matrix:
		for _, one := range value {
			all = append(all, series(one.Metric, one.Values...))
		}
	case *model.Scalar:
		all = append(all, series(nil, model.SamplePair{Timestamp: value.Timestamp, Value: value.Value}))
	default:
		return nil, fmt.Errorf("query %q: the answer is a %T", expression, value)
	}
	return all, nil
}

func series(metric model.Metric, samples ...model.SamplePair) Series {
	s := Series{Labels: map[string]string{}}
	for name, value := range metric {
		s.Labels[string(name)] = string(value)
	}
	for _, sample := range samples {
		s.Samples = append(s.Samples, Sample{Time: sample.Timestamp.Time().UTC(), Value: float64(sample.Value)})
	}
	return s
}

// Scraped gives the samples of a metric (a selector, such as up{job="x"}) as they
// were scraped from one time up to another, with both.
func (s *Server) Scraped(ctx context.Context, selector string, from, to time.Time) ([]Series, error) {
	// A range begins after its start.
	length := max(to.Sub(from).Milliseconds()+1, 1)
	return s.Query(ctx, fmt.Sprintf("%s[%dms]", selector, length), to)
}

// WaitScrapes waits until every target has been scraped n more times.
func (s *Server) WaitScrapes(ctx context.Context, n int) error {
	from := time.Now()
	missing := "none was scraped"
	err := wait.PollUntilContextCancel(ctx, s.options.Interval/4, true, func(ctx context.Context) (bool, error) {
		series, err := s.Scraped(ctx, "up", from, time.Now())
		if err != nil {
			return false, err
		}
		done := 0
		for _, up := range series {
			succeeded := 0
			for _, sample := range up.Samples {
				succeeded += int(sample.Value)
			}
			if succeeded >= n {
				done++
			} else {
				missing = fmt.Sprintf("%s was scraped %d times", up.Labels["instance"], succeeded)
			}
		}
		return done == len(s.options.Targets), nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d scrapes: %w (%s)", n, err, missing)
	}
	return nil
}
