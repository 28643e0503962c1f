package auth

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// cacheUse counts the results of looking for a key's hash in the cache.
type cacheUse struct{ hits, refused, misses prometheus.Counter }

func newCacheUse(reg prometheus.Registerer) cacheUse {
	results := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "mgw_key_cache_requests_total",
		Help: "Lookups of hashes of keys in the cache, by result: hit for a current record, " +
			"refused for a hash that is known to be unknown or revoked, miss for one that the control plane is asked for.",
	}, []string{"result"})
	return cacheUse{
		hits:    results.WithLabelValues("hit"),
		refused: results.WithLabelValues("refused"),
		misses:  results.WithLabelValues("miss"),
	}
}
