// Put before the worker of the site's search: it leaves out of a question what says nothing, as every word of it counts as
// the beginning of a word. "stop a running task" would find all that begins with "a".
(() => {
  const SAYS_NOTHING = new Set((
    "about after all am an and another any are as at be been before by can cannot could did do does don't for from get gets " +
    "had has have he her how i'm if in into is it its just make many me more much my need no not of off on one only or other " +
    "our over own same set several she should so some such than that the their them then there these they this those to " +
    "too up us use using very want was we were what when where which while who why will with would you your"
  ).split(" "))
  const plain = word => word.toLowerCase().replace(/[?!.,;:'"]+$/, "")
  const cleaned = query => {
    if (/["+~^*]|(^|\s)-/.test(query)) return query // somebody knows the language of queries
    const words = query.split(/\s+/).map(plain).filter(word => word.length > 1 && !SAYS_NOTHING.has(word))
    // a plural finds its singular; the word itself counts more than what begins with it
    return words.map(word => word.replace(/([^s])s$/, "$1")).map(word => `${word}^4 ${word}`).join(" ") || query
  }
  addEventListener("message", event => {
    if (event.data.type === 2) event.data.data = cleaned(event.data.data)
  })
})()
