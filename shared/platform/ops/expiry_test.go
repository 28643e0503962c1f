package ops

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A certificate that cannot be read has no value, which would look as if it had expired.
func TestExpiriesLeaveOutWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	e := Expiries{Desc: prometheus.NewDesc("expiry", "Help.", []string{"certificate"}, nil), Times: map[string]func() (time.Time, error){
		"api":  func() (time.Time, error) { return time.Unix(1000, 0), nil },
		"nats": func() (time.Time, error) { return time.Time{}, errors.New("no TLS") },
	}}
	if err := testutil.CollectAndCompare(e, strings.NewReader("# HELP expiry Help.\n# TYPE expiry gauge\nexpiry{certificate=\"api\"} 1000\n")); err != nil {
		t.Error(err)
	}
}
