#pragma once

#include <string>
#include <string_view>
#include <vector>

// Names that were mistyped.
namespace dear {

// The name that is most like `word`, by characters to insert, delete and replace; "" where none is so like
// that it may have been meant.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& names);

// For a message: ", did you mean NAME?" where one may have been meant, else `otherwise`, as in "there is no
// model 'vgg6', did you mean vgg16? choose one of ...".
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names,
                         std::string_view otherwise = ";");

}  // namespace dear
