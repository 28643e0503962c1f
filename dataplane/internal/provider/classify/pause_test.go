package classify

import (
	"net/http"
	"testing"
	"time"
)

func TestPauseIsFoundInHeadersMembersAndProse(t *testing.T) {
	tests := []struct {
		name   string
		header map[string]string
		body   string
		want   time.Duration
	}{
		{name: "none named", body: `{"error":{"message":"Too many requests"}}`},
		{name: "seconds", header: map[string]string{"Retry-After": "7"}, want: 7 * time.Second},
		{name: "fraction rounds up", header: map[string]string{"Retry-After": "1.2"}, want: 2 * time.Second},
		{name: "zero is the shortest", header: map[string]string{"Retry-After": "0"}, want: time.Second},
		{name: "date", header: map[string]string{"Retry-After": "Fri, 21 Nov 2025 08:00:42 GMT"}, want: 42 * time.Second},
		{name: "date in the past", header: map[string]string{"Retry-After": "Fri, 21 Nov 2025 07:00:42 GMT"}, want: time.Second},
		{name: "milliseconds", header: map[string]string{"Retry-After-Ms": "2500"}, want: 3 * time.Second},
		{name: "milliseconds go before seconds", header: map[string]string{"Retry-After-Ms": "1500", "Retry-After": "9"}, want: 2 * time.Second},
		{name: "an hour is a minute", header: map[string]string{"Retry-After": "3600"}, want: time.Minute},
		{name: "garbage", header: map[string]string{"Retry-After": "soon"}},
		{name: "negative", header: map[string]string{"Retry-After": "-5"}},
		{name: "not a number", header: map[string]string{"Retry-After": "NaN"}},
		{name: "huge", header: map[string]string{"Retry-After": "1e300"}, want: time.Minute},
		{name: "header goes before body", header: map[string]string{"Retry-After": "3"}, body: "try again in 9s", want: 3 * time.Second},
		{name: "reset as a duration", header: map[string]string{"X-Ratelimit-Reset-Tokens": "6m0s", "X-Ratelimit-Remaining-Tokens": "0"}, want: time.Minute},
		{name: "reset of a budget with something left", header: map[string]string{"X-Ratelimit-Reset-Tokens": "6s", "X-Ratelimit-Remaining-Tokens": "100"}},
		{name: "reset as a moment", header: map[string]string{"X-Ratelimit-Reset": "1763712020"}, want: 20 * time.Second},
		{name: "reset as a moment in milliseconds", header: map[string]string{"X-Ratelimit-Reset": "1763712020000"}, want: 20 * time.Second},
		{name: "retryDelay", body: `{"error":{"details":[{"retryDelay":"13s"}]}}`, want: 13 * time.Second},
		{name: "quotaResetDelay", body: `{"error":{"details":[{"metadata":{"quotaResetDelay":"479.417207ms"}}]}}`, want: time.Second},
		{name: "member in seconds", body: `{"error":{"message":"busy","retry_after":12}}`, want: 12 * time.Second},
		{name: "member in milliseconds", body: `{"error":{"message":"busy","retry_after_ms":1200}}`, want: 2 * time.Second},
		{name: "German", body: "Bitte versuchen Sie es in 12 Sekunden erneut.", want: 12 * time.Second},
		{name: "Japanese", body: "30秒後に再試行してください。", want: 30 * time.Second},
		{name: "try again in ms", body: "please try again in 6ms.", want: time.Second},
		{name: "try again in s", body: "Please try again in 20s.", want: 20 * time.Second},
		{name: "retry after seconds", body: "Please retry after 86400 seconds.", want: time.Minute},
		{name: "hours together", body: "Your quota will reset after 1h43m56s.", want: time.Minute},
		{name: "minutes and seconds", body: "try again in 0 minutes and 31 seconds", want: 31 * time.Second},
		{name: "fraction in prose", body: "Please retry in 44.097740004s.", want: 45 * time.Second},
		{name: "wait", body: "Rate limit reached, wait 3 seconds", want: 3 * time.Second},
		{name: "colon", body: "rate limited; retry_after: 8", want: 8 * time.Second},
		{name: "chinese", body: "请在 30 秒后重试", want: 30 * time.Second},
		{name: "chinese minute", body: "请 1 分钟后再试", want: time.Minute},
		{name: "russian", body: "Повторите через 30 секунд.", want: 30 * time.Second},
		{name: "russian minute", body: "подождите 1 минуту", want: time.Minute},
		{name: "french", body: "Trop de requêtes, réessayez dans 12 secondes", want: 12 * time.Second},
		{name: "portuguese", body: "Tente novamente em 30 segundos.", want: 30 * time.Second},
		{name: "korean", body: "10초 후 다시 시도하세요.", want: 10 * time.Second},
		{name: "moment in prose", body: "limit resets at 2025-11-21T08:00:15Z", want: 15 * time.Second},
		{name: "a window is no pause", body: "limit of 20 requests per 60 seconds reached"},
		{name: "a count is no pause", body: "try again in 5 messages"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			for k, v := range tt.header {
				h.Set(k, v)
			}
			got := clampPause(findPause(h, unwrap([]byte(tt.body), ""), answeredAt))
			if got != tt.want {
				t.Errorf("got %v; want %v", got, tt.want)
			}
		})
	}
}

func TestRetryAfterIsLimitedAndPauseIsNot(t *testing.T) {
	v := Classify(Answer{Format: "chat", Status: 429, Body: []byte(`{"error":{"message":"Rate limit hit, try again in 2h"}}`), Now: answeredAt})
	if v.RetryAfter != time.Minute || v.Pause != 2*time.Hour {
		t.Errorf("got %v for the client, pause %v; want 1m0s, 2h0m0s", v.RetryAfter, v.Pause)
	}
}
