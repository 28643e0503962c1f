package videojob

import (
	"encoding/json"
	"strings"
	"testing"

	"modelgateway/shared/event"
)

func backup(t *testing.T, v *event.Video) Backup {
	t.Helper()
	payload, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return DecodeBackup(payload)
}

// Of two states with the same revision, completed wins over failed, failed over others, and
// otherwise the later one.
func TestNewestKeepsTheHighestRevision(t *testing.T) {
	t.Parallel()
	named := func(rev int64, status, upstream string) *event.Video {
		v := job(rev, status)
		v.UpstreamID = upstream
		return v
	}
	tests := []struct {
		name   string
		states []*event.Video
		want   *event.Video
	}{
		{"one", []*event.Video{job(1, event.VideoQueued)}, job(1, event.VideoQueued)},
		{"in order", []*event.Video{job(1, event.VideoQueued), job(2, event.VideoInProgress)}, job(2, event.VideoInProgress)},
		{"an older state is last", []*event.Video{job(5, event.VideoInProgress), job(2, event.VideoFailed)}, job(5, event.VideoInProgress)},
		{"completed, then failed", []*event.Video{job(3, event.VideoCompleted), job(3, event.VideoFailed)}, job(3, event.VideoCompleted)},
		{"failed, then completed", []*event.Video{job(3, event.VideoFailed), job(3, event.VideoCompleted)}, job(3, event.VideoCompleted)},
		{"failed, then in progress", []*event.Video{job(3, event.VideoFailed), job(3, event.VideoInProgress)}, job(3, event.VideoFailed)},
		{"in the same state twice", []*event.Video{named(2, event.VideoQueued, ""), named(2, event.VideoQueued, "up")}, named(2, event.VideoQueued, "up")},
	}
	for _, tt := range tests {
		var n Newest
		for _, v := range tt.states {
			n.Add(backup(t, v))
		}
		all := n.All()
		if len(all) != 1 || all[0].Fault != "" || all[0].Video.Rev != tt.want.Rev || all[0].Video.Status != tt.want.Status || all[0].Video.UpstreamID != tt.want.UpstreamID {
			t.Errorf("%s: got %+v; want %+v", tt.name, all, tt.want)
		}
	}
}

// A malformed record is passed on with its error.
func TestDecodeBackupRejectsInvalidRecords(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(v *event.Video){
		"version":     func(v *event.Video) { v.V = event.Version + 1 },
		"revision":    func(v *event.Video) { v.Rev = 0 },
		"video_x":     func(v *event.Video) { v.ID = "video_x" },
		"another req": func(v *event.Video) { v.RequestID = "another req" },
		"no account":  func(v *event.Video) { v.AccountID = "no account" },
		"no key":      func(v *event.Video) { v.KeyID = "no key" },
	} {
		v := job(1, event.VideoQueued)
		spoil(v)
		if k := backup(t, v); k.Video != nil || !strings.Contains(k.Fault, want) || len(k.Payload) == 0 {
			t.Errorf("%s: got %+v", want, k)
		}
	}
	var n Newest
	n.Add(DecodeBackup([]byte("{")))
	n.Add(DecodeBackup([]byte("{")))
	if all := n.All(); len(all) != 2 || all[0].Fault == "" {
		t.Errorf("got %+v; want both invalid backups", all)
	}
}
