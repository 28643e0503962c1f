package videos

import (
	"slices"
	"strings"
)

// statuses has the words of providers for each state, in lower case and without what separates words.
var statuses = wordsOf(map[Status]string{
	Queued: "queued queueing queuing inqueue pending submitted accepted created new notstart notstarted waiting wait scheduled " +
		"throttled ratelimited delayed suspended paused initializing initialized",
	InProgress: "inprogress processing preprocessing postprocessing preparing running run started starting active working " +
		"generating generation dreaming rendering streaming encoding uploading downloading upscaling finalizing retrying " +
		"cancelling canceling",
	Completed: "completed complete succeeded succeed success successful finished finish done ready",
	Failed: "failed failure fail error errored exception cancelled canceled cancel expired rejected refused denied aborted " +
		"terminated stopped killed timeout timedout nsfw blocked banned moderated moderation moderationfailed contentmoderation " +
		"filtered unsafe flagged censored violation invalid incomplete budgetexceeded deleted notfound dead deadletter",
})

func wordsOf(lists map[Status]string) map[string]Status {
	all := map[string]Status{}
	for status, list := range lists {
		for word := range strings.FieldsSeq(list) {
			all[word] = status
		}
	}
	return all
}

// subjects are what a word for a state may begin with: "TASK_STATUS_SUCCEED", "JobState.FAILED", "video generated".
var subjects = []string{"task", "job", "video", "status", "state", "generation", "render", "prediction", "operation", "request"}

// failures are the endings of words for a failure, which say what has failed before: "content_moderated", "SUBMIT_FAILED".
var failures = []string{
	"failed", "failure", "error", "errored", "cancelled", "canceled", "expired", "rejected", "aborted", "timeout", "timedout", "moderated",
	"filtered", "blocked", "violation", "notfound", "exceeded",
}

// statusOf maps a provider's state. An unknown one is not final: the job is polled again, and nothing is charged yet.
func statusOf(word string) (status Status, known bool) {
	word = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return -1
	}, word)

	for rest, cut := word, true; cut; {
		if status, known = statuses[rest]; known {
			return status, true
		}
		rest, cut = withoutSubject(rest)
	}

	if slices.ContainsFunc(failures, func(ending string) bool { return strings.HasSuffix(word, ending) }) {
		return Failed, true
	}

	return InProgress, false
}

func withoutSubject(word string) (rest string, cut bool) {
	for _, subject := range subjects {
		if rest, cut = strings.CutPrefix(word, subject); cut {
			return rest, true
		}
	}
	return word, false
}
