package systempages

import (
	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// videoStates are the states of video jobs; those that need somebody come first.
var videoStates = []adminclient.VideoState{
	adminclient.VideoStateUnknown, adminclient.VideoStateStuck, adminclient.VideoStateQueued, adminclient.VideoStateInProgress,
	adminclient.VideoStateCompleted, adminclient.VideoStateFailed, adminclient.VideoStateGivenUp,
}

type videoJobsView struct {
	// Open has the jobs that are unknown or stuck, on the first page without a filter.
	Open   []adminclient.VideoJob
	List   *adminclient.VideoJobList
	Pages  kit.Pages
	States []kit.Option
	Filter struct{ AccountID, State string }
}

// listVideoJobs shows video jobs, newest first.
func listVideoJobs(r *kit.Request) (*kit.Page, error) {
	var data videoJobsView
	data.Filter.AccountID, data.Filter.State = r.Text("account_id"), r.Text("state")
	for _, s := range videoStates {
		data.States = append(data.States, kit.Option{Value: string(s)})
	}

	params := &adminclient.ListVideoJobsParams{
		AccountID: kit.Optional(data.Filter.AccountID),
		Cursor:    kit.Cursor(r),
		Limit:     new(kit.PageSize),
	}
	if data.Filter.State != "" {
		params.State = new(adminclient.VideoState(data.Filter.State))
	}

	answer, err := r.API.ListVideoJobs(r.Context(), params)
	if err != nil {
		return nil, err
	}

	data.List, data.Pages = answer.Value, kit.PagesOf(r, answer.Value.NextCursor)
	if data.Filter.State == "" && params.Cursor == nil {
		for _, s := range videoStates[:2] {
			open, err := r.API.ListVideoJobs(
				r.Context(),
				&adminclient.ListVideoJobsParams{AccountID: params.AccountID, State: &s, Limit: new(kit.PageSize)},
			)
			if err != nil {
				return nil, err
			}
			data.Open = append(data.Open, open.Value.Data...)
		}
	}

	command := kit.Command("video-jobs list", "--account-id", data.Filter.AccountID, "--state", data.Filter.State)
	return &kit.Page{
		Template: "video_jobs",
		Title:    "Video jobs",
		Command:  command,
		Data:     &data,
	}, nil
}

// showVideoJob shows one video job.
func showVideoJob(r *kit.Request) (*kit.Page, error) {
	answer, err := r.API.GetVideoJob(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &kit.Page{
		Template: "video_job",
		Title:    "Video job",
		Crumbs:   []kit.Link{{Text: "Video jobs", URL: "/console/video-jobs"}},
		Command:  "gwctl video-jobs get " + answer.Value.ID,
		Data:     answer.Value,
	}, nil
}
