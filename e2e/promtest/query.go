package promtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

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
	series, err := s.ask(ctx, "/api/v1/query", url.Values{"query": {expression}, "time": {formatTime(at)}})
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", expression, err)
	}
	return series, nil
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

func formatTime(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

// answer is what the HTTP API says (https://prometheus.io/docs/prometheus/latest/querying/api/).
type answer struct {
	Status   string   `json:"status"`
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Data     struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

func (s *Server) ask(ctx context.Context, path string, values url.Values) ([]Series, error) {
	data, err := s.get(ctx, path, values)
	if err != nil {
		return nil, err
	}
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if len(a.Warnings) > 0 {
		return nil, fmt.Errorf("the answer is incomplete: %v", a.Warnings)
	}
	return parseResult(a.Data.ResultType, a.Data.Result)
}

func parseResult(kind string, result json.RawMessage) ([]Series, error) {
	var series []Series
	switch kind {
	case "vector", "matrix":
		var found []struct {
			Metric map[string]string `json:"metric"`
			Value  *point            `json:"value"`
			Values []point           `json:"values"`
		}
		if err := json.Unmarshal(result, &found); err != nil {
			return nil, fmt.Errorf("read the answer's %s: %w", kind, err)
		}
		for _, f := range found {
			one := Series{Labels: f.Metric}
			if f.Value != nil {
				f.Values = append(f.Values, *f.Value)
			}
			for _, p := range f.Values {
				one.Samples = append(one.Samples, Sample(p))
			}
			series = append(series, one)
		}
	case "scalar":
		var p point
		if err := json.Unmarshal(result, &p); err != nil {
			return nil, fmt.Errorf("read the answer's %s: %w", kind, err)
		}
		series = append(series, Series{Labels: map[string]string{}, Samples: []Sample{Sample(p)}})
	default:
		return nil, fmt.Errorf("read the answer: it is a %s", kind)
	}
	return series, nil
}

// point is a sample as the API writes it: [seconds, "value"].
type point Sample

func (p *point) UnmarshalJSON(data []byte) error {
	var seconds float64
	var value string
	if err := json.Unmarshal(data, &[]any{&seconds, &value}); err != nil {
		return err
	}
	// Prometheus keeps milliseconds.
	p.Time = time.UnixMilli(int64(math.Round(seconds * 1000))).UTC()
	var err error
	p.Value, err = strconv.ParseFloat(value, 64)
	return err
}

// get returns the body of an answer, whose error is what Prometheus says if it has
// none.
func (s *Server) get(ctx context.Context, path string, values url.Values) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path+"?"+values.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := s.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		var a answer
		if json.Unmarshal(data, &a) == nil && a.Error != "" {
			return nil, fmt.Errorf("%s: %s", response.Status, a.Error)
		}
		return nil, fmt.Errorf("%s: %s", response.Status, data)
	}
	return data, nil
}
