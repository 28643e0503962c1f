package billingapi

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"

	"modelgateway/controlplane/internal/httpapi/convert"
	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/videojob"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
)

func (h *Handlers) ListVideoJobs(
	ctx context.Context,
	_ *gen.Call,
	r gen.ListVideoJobsRequestObject,
) (gen.ListVideoJobsResponseObject, error) {
	p, err := convert.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}

	query, err := videoQuery(&r.Params)
	if err != nil {
		return nil, err
	}
	if query.Before, err = p.UUID(); err != nil {
		return nil, err
	}

	query.Limit = p.Limit + 1
	found, err := h.Videos.Jobs(ctx, query)
	if err != nil {
		return nil, err
	}

	found, cursor := convert.NextPage(p, found, func(j *videojob.Job) []byte { return j.ID[:] })
	return gen.ListVideoJobs200JSONResponse{Data: convert.All(found, videoView), NextCursor: cursor}, nil
}

var (
	videoStatuses = []string{event.VideoQueued, event.VideoInProgress, event.VideoCompleted, event.VideoFailed}
	videoStates   = []videojob.State{
		videojob.Queued,
		videojob.Running,
		videojob.Unknown,
		videojob.Stuck,
		videojob.Completed,
		videojob.Failed,
		videojob.GivenUp,
	}
)

// videoQuery parses the filters of the list.
func videoQuery(params *gen.ListVideoJobsParams) (q videojob.JobQuery, err error) {
	var invalid validation.Errors
	q.From, q.To = convert.Value(params.From), convert.Value(params.To)
	convert.CheckTimeRange(&invalid, q.From, q.To)
	q.AccountID, _ = convert.ReadOwner(&invalid, params.AccountID, nil)
	if params.Status != nil {
		if q.Status = string(*params.Status); !slices.Contains(videoStatuses, q.Status) {
			invalid.Add("status", "is not the status of a video job")
		}
	}
	if params.State != nil {
		if q.State = videojob.State(*params.State); !slices.Contains(videoStates, q.State) {
			invalid.Add("state", "is not the state of a video job")
		}
	}
	return q, invalid.Err()
}

func (h *Handlers) GetVideoJob(ctx context.Context, _ *gen.Call, r gen.GetVideoJobRequestObject) (gen.GetVideoJobResponseObject, error) {
	id, err := ident.Video.Parse(r.VideoID)
	if err != nil {
		return nil, videojob.ErrNotFound
	}
	job, err := h.Videos.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	return gen.GetVideoJob200JSONResponse(videoView(&job)), nil
}

// errorCode matches error codes of providers, and no text.
var errorCode = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// whyFailed returns why the gateway gave up a job, or the error code of the provider. It omits the
// provider's message, which can quote the prompt.
func whyFailed(v *event.Video) string {
	if v.Error != "" || v.Status != event.VideoFailed {
		return v.Error
	}
	var object struct{ Error struct{ Code string } }
	if err := json.Unmarshal(v.Object, &object); err != nil || !errorCode.MatchString(object.Error.Code) {
		return ""
	}
	return "the provider reports " + object.Error.Code
}

// videoView omits the provider's object, which can contain the prompt.
func videoView(j *videojob.Job) gen.VideoJob {
	v := &j.Record
	view := gen.VideoJob{
		ID:           ident.Video.Format(j.ID),
		RequestID:    v.RequestID,
		AccountID:    v.AccountID,
		KeyID:        v.KeyID,
		Model:        v.Model,
		Provider:     v.Provider,
		Route:        v.Route,
		UpstreamID:   convert.Optional(v.UpstreamID),
		Status:       gen.VideoStatus(v.Status),
		State:        gen.VideoState(j.State),
		Error:        convert.Optional(whyFailed(v)),
		Size:         convert.Optional(v.Size),
		PriceVersion: v.PriceVersion,
		CreatedAt:    j.CreatedAt,
		UpdatedAt:    j.UpdatedAt,
		EndedAt:      j.EndedAt,
	}
	if v.Seconds > 0 {
		view.Seconds = &v.Seconds
	}

	return view
}
