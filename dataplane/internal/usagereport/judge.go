package usagereport

import (
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// Reason is why a report of usage is in doubt.
type Reason string

// The reasons. With all but the first two, the usage is an estimate.
const (
	// None: the report is believed.
	None Reason = ""
	// Ambiguous: the report has several meanings. It is believed with the one that is cheapest for the customer.
	Ambiguous Reason = "ambiguous"
	// Missing: a complete answer has no report.
	Missing Reason = "missing"
	// Interrupted: the answer broke off before its report, because of the provider, of the client, or of this proxy.
	Interrupted Reason = "interrupted"
	// Unreadable: a count of the report is no count.
	Unreadable Reason = "unreadable"
	// NoInput: the report has no input, although there is output.
	NoInput Reason = "no_input"
	// LowInput: the report has less input than the text of the request can have.
	LowInput Reason = "low_input"
	// LowOutput: the report has less than half of the output that was delivered.
	LowOutput Reason = "low_output"
	// HighInput, HighOutput and HighOther: a count is beyond what the request allows.
	HighInput  Reason = "high_input"
	HighOutput Reason = "high_output"
	HighOther  Reason = "high_other"
	// Unpriced: the reported usage has no price.
	Unpriced Reason = "unpriced"
)

// Estimated reports whether the usage is an estimate.
func (r Reason) Estimated() bool { return r != None && r != Ambiguous }

// Evidence is what an answer shows besides the usage that it reports.
type Evidence struct {
	// Unreadable reports whether there was a report that could not be read, Ambiguous whether the report has several
	// meanings, of which the cheapest was taken.
	Unreadable, Ambiguous bool
	// ServiceTier is the service tier that the answer names, "auto" if it says so far only that the provider chooses one; Speed is
	// the mode of the messages format. Both are empty for none.
	ServiceTier, Speed string
	// Tokens is the estimate of the delivered output, Chars the number of its characters.
	Tokens, Chars int64
	// Audio is the estimate of the tokens of the delivered audio, Images the number of the images in a text answer.
	Audio, Images int64
	// Hidden is the part of the reported output that only a total has.
	Hidden int64
}

// Request is what the request says about its usage.
type Request struct {
	// Input is the estimate of its input, Text the length of its text in bytes.
	Input, Text int64
	// MaxInput and MaxOutput are the most that it allows, zero if unknown; see event.Usage.
	MaxInput, MaxOutput int64
	// ByToken reports whether tokens have a price, PicturesByToken whether images have none but that of their tokens.
	ByToken, PicturesByToken bool
	// AudioByToken and ImagesByToken report whether the tokens of audio and of images in the output have a price of their own.
	AudioByToken, ImagesByToken bool
}

// maxChars is how many characters of a text a token has at most on average. It is twice the usual number: a report of less
// than half of the usual output is not believed.
const maxChars = 8

// maxText is how many bytes of the text of a prompt a token has at most on average. Usual are four. Repeated characters make
// tokens of a hundred, and a provider may leave the reasoning of earlier turns out.
const maxText = 256

// The tokens of an image whose provider reports none.
const (
	lowPicture    = 272
	mediumPicture = 1056
	highPicture   = 4160
)

// Judge returns the usage to charge and the reason to doubt u, the one that an answer has reported. Of a report that cannot be
// true, only the side that cannot be is replaced by an estimate. reported is false if there was no final
// report; u may then have a part of one. complete reports whether the answer is.
func Judge(u price.Usage, reported, complete bool, e *Evidence, r *Request) (price.Usage, Reason) {
	first := None
	doubt := func(reason Reason) {
		if first == None {
			first = reason
		}
	}

	switch {
	case reported:
	case e.Unreadable:
		doubt(Unreadable)
	case complete:
		doubt(Missing)
	default:
		doubt(Interrupted)
	}

	if reported {
		u.Images = max(u.Images, e.Images)
	}

	ambiguous := e.Ambiguous
	for hidden := e.Hidden; ; {
		part, _ := (&event.Usage{Usage: u, MaxInput: r.MaxInput, MaxOutput: r.MaxOutput}).Beyond()
		if part == "" {
			break
		}
		if part == event.OutputPart && 0 < hidden && hidden <= u.Output {
			// A total that cannot be true does not take the counts with it that can be.
			u.Output -= hidden
			u.Reasoning = min(u.Reasoning, u.Output)
			hidden, ambiguous = 0, true
			continue
		}
		doubt(drop(&u, part))
	}

	if !reported {
		u.Output = max(u.Output, e.Tokens)
	}

	if r.ByToken {
		if e.Chars > maxChars*u.Output {
			doubt(LowOutput)
			u.Output = max(u.Output, e.Tokens)
		}
		if reported && lowMedia(&u, e, r) {
			doubt(LowOutput)
		}
	}

	if r.ByToken && r.PicturesByToken && u.Images > 0 && u.Output == 0 {
		if u.TotalInput() == 0 {
			doubt(Missing)
		}
		doubt(LowOutput)
		u.Output = u.Images * pictureTokens(u.Quality)
		u.ImageOut = u.Output
	}

	if input := u.TotalInput(); r.ByToken && input > 0 && r.Text > maxText*input {
		doubt(LowInput)
		u.Input = max(u.Input, r.Input)
	}

	if u.TotalInput() == 0 && (!reported || r.ByToken && u.Output > 0 || first != None) {
		doubt(NoInput)
		u.Input = r.Input
	}

	if ambiguous {
		doubt(Ambiguous)
	}

	return u, first
}

// JudgeVideo is Judge for the length of a video, in seconds. requested is the length that was asked for.
func JudgeVideo(seconds, requested int64) (int64, Reason) {
	if seconds == 0 {
		return requested, Missing
	}
	if part, _ := (&event.Usage{Usage: price.Usage{Seconds: seconds}, MaxSeconds: requested}).Beyond(); part != "" {
		return requested, HighOther
	}
	return seconds, None
}

// lowMedia raises a reported output that has less than half of the delivered text, audio and images, and its parts of audio and of
// images if they have less than half of these. It reports whether it did any of it. What no report has is not its concern: the
// delivered audio and images are added to such a usage.
func lowMedia(u *price.Usage, e *Evidence, r *Request) bool {
	images := e.Images
	if !r.PicturesByToken {
		images = 0 // they are charged each
	}

	least := e.Chars + maxChars/2*(e.Audio+images*lowPicture)
	low := e.Audio+images > 0 && least > maxChars*u.Output
	if low {
		u.Output = max(u.Output, e.Tokens+e.Audio+images*mediumPicture)
	}

	if r.AudioByToken && e.Audio > 2*u.AudioOut {
		u.AudioOut = min(e.Audio, u.Output)
		low = true
	}
	if r.ImagesByToken && images*lowPicture > 2*u.ImageOut {
		u.ImageOut = min(images*mediumPicture, u.Output-u.AudioOut)
		low = true
	}

	return low
}

// drop removes a part of a usage that is beyond what the request allows.
func drop(u *price.Usage, part event.Part) Reason {
	for i, count := range u.Counts() {
		if event.PartOf(&price.Kinds[i]) == part {
			*count = 0
		}
	}

	switch part {
	case event.InputPart:
		return HighInput
	case event.OutputPart:
		return HighOutput
	case event.SecondaryPart:
		u.Secondary = price.Secondary{}
	case event.ImagesPart, event.SecondsPart, event.ToolsPart:
	}
	return HighOther
}

func pictureTokens(quality string) int64 {
	switch quality {
	case "low":
		return lowPicture
	case "high", "hd":
		return highPicture
	}
	return mediumPicture
}
