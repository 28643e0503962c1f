package providersim

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Video is a job in the videos format.
type Video struct {
	ID            string      `json:"id"`
	Object        string      `json:"object"`
	Model         string      `json:"model"`
	Status        string      `json:"status"` // queued, in_progress, completed, failed
	Progress      int64       `json:"progress"`
	CreatedAt     int64       `json:"created_at"`   // Unix seconds
	CompletedAt   *int64      `json:"completed_at"` // Unix seconds
	ExpiresAt     *int64      `json:"expires_at"`   // Unix seconds
	Prompt        string      `json:"prompt"`
	Size          string      `json:"size"`
	Seconds       string      `json:"seconds"`
	RemixedFromID *string     `json:"remixed_from_video_id"`
	Error         *videoFault `json:"error"`
	Usage         *videoUsage `json:"usage,omitempty"` // of a failed job that has made something

	finished  bool
	createdAt time.Time
}

type videoUsage struct {
	Seconds int64 `json:"video_seconds"`
}

type videoFault struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
}

// contentTTL is the time from the completion to expires_at.
const contentTTL = time.Hour

type videoJob struct {
	id, model, prompt, size string
	seconds                 int64
	created                 time.Time
	d                       *directives

	polls int64
	ended time.Time // zero while it is running
}

// advance counts a poll. The first d.polls of them find the job in progress.
func (j *videoJob) advance(now time.Time) {
	j.polls++
	if j.ended.IsZero() && j.polls > j.d.polls && now.Sub(j.created) >= j.d.takes {
		j.ended = now
	}
}

func (j *videoJob) object() Video {
	v := Video{
		ID:        j.id,
		Object:    "video",
		Model:     j.model,
		Prompt:    j.prompt,
		Size:      j.size,
		Seconds:   strconv.FormatInt(j.seconds, 10),
		CreatedAt: j.created.Unix(),
		createdAt: j.created,
	}

	switch {
	case j.ended.IsZero() && j.polls == 0:
		v.Status = "queued"
	case j.ended.IsZero():
		v.Status, v.Progress = "in_progress", min(99, 100*j.polls/(j.d.polls+1))
	case j.d.fail:
		v.Status, v.Progress = "failed", 57
		code, message := "moderation_blocked", "The request was blocked by the moderation system."
		if j.d.code != "" {
			code = j.d.code
		}
		if j.d.message != "" {
			message = j.d.message
		}
		v.Error = &videoFault{Code: code, Message: message, Type: "image_generation_user_error"}
		v.CompletedAt = unix(j.ended)
		if j.d.made > 0 {
			v.Usage = &videoUsage{j.d.made}
		}
	default:
		v.Status, v.Progress, v.finished = "completed", 100, true
		v.CompletedAt, v.ExpiresAt = unix(j.ended), unix(j.ended.Add(contentTTL))
		if j.d.expired {
			v.ExpiresAt = unix(j.created)
		}
	}

	if j.d.foreign {
		v.Status = foreignStatus[v.Status]
	}

	return v
}

// foreignStatus maps statuses to those of other providers.
var foreignStatus = map[string]string{
	"queued": "preprocessing", "in_progress": "processing", "completed": "succeeded", "failed": "cancelled",
}

func unix(t time.Time) *int64 {
	s := t.Unix()
	return &s
}

// videoStore keeps the jobs, oldest first.
type videoStore struct {
	mu    sync.Mutex
	jobs  []*videoJob
	byKey map[string]*videoJob // idempotency key
}

func (s *videoStore) create(key string, job *videoJob) Video {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != "" {
		if known, ok := s.byKey[key]; ok {
			return known.object()
		}
		if s.byKey == nil {
			s.byKey = make(map[string]*videoJob)
		}
		s.byKey[key] = job
	}
	s.jobs = append(s.jobs, job)
	return job.object()
}

func (s *videoStore) find(id string) *videoJob {
	i := slices.IndexFunc(s.jobs, func(j *videoJob) bool { return j.id == id })
	if i < 0 {
		return nil
	}
	return s.jobs[i]
}

func (s *videoStore) poll(id string, now time.Time) (Video, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.find(id)
	if job == nil {
		return Video{}, false
	}
	job.advance(now)
	return job.object(), true
}

// get returns a job without counting a poll.
func (s *videoStore) get(id string) (Video, *directives, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.find(id)
	if job == nil {
		return Video{}, nil, false
	}
	return job.object(), job.d, true
}

func (s *videoStore) remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.jobs)
	s.jobs = slices.DeleteFunc(s.jobs, func(j *videoJob) bool { return j.id == id })
	return len(s.jobs) < before
}

// list returns up to limit jobs after the job with the id after, and whether there are more.
func (s *videoStore) list(after string, oldestFirst bool, limit int) ([]Video, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := make([]Video, 0, len(s.jobs))
	for _, job := range s.jobs {
		shown = append(shown, job.object())
	}

	if !oldestFirst {
		slices.Reverse(shown)
	}
	if i := slices.IndexFunc(shown, func(v Video) bool { return v.ID == after }); i >= 0 {
		shown = shown[i+1:]
	}
	if len(shown) > limit {
		return shown[:limit], true
	}

	return shown, false
}

func (s *videoStore) all() []Video {
	shown, _ := s.list("", true, math.MaxInt)
	return shown
}

func (s *videoStore) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs, s.byKey = nil, nil
}

func (s *videoStore) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}
