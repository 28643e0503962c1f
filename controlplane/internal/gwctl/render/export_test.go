package render

// Chosen is for the test that the columns exist.
var Chosen = chosen
